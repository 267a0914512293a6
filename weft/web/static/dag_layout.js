// Where the boxes of a graph go: layers by the longest path, few crossings, short lines. Pure.

import { childrenOf, longest } from "./dag_groups.js";

const BEND = 8; // an edge's place in a layer that it passes
const SWEEPS = 8;
const PAD = 10;

/**
 * Order each layer by where its neighbours are, then move every box as near to the middle of its
 * neighbours as the order allows. An edge over several layers gets a thin place in each, so that no
 * line runs through a box. `across` is a box's size within a layer, `along` between layers; with
 * `down` the layers are rows, else columns. Answers {spots: [{x, y}], edges: [{parent, child, d}],
 * width, height}.
 */
export function layout(parents, { along, across, gapAlong, gapAcross, down }) {
  const count = parents.length;
  const layer = longest(parents, childrenOf(parents));
  const layers = [];
  layer.forEach((number, i) => (layers[number] ??= []).push(i));
  const above = parents.map(() => []);
  const below = parents.map(() => []);
  const edges = parents.flatMap((list, child) =>
    list.map((parent) => {
      const via = [];
      for (let step = layer[parent] + 1; step < layer[child]; step += 1) {
        const bend = above.push([]) - 1;
        below.push([]);
        layers[step].push(bend);
        via.push(bend);
      }
      [parent, ...via].forEach((one, i) => {
        const to = [...via, child][i];
        below[one].push(to);
        above[to].push(one);
      });
      return { parent, child, via };
    }),
  );
  order(layers, above, below);
  const size = (i) => (i < count ? across : BEND);
  const middle = settle(layers, above, below, size, gapAcross);
  const least = Math.min(...middle.map((m, i) => m - size(i) / 2));
  const most = Math.max(...middle.map((m, i) => m + size(i) / 2));
  const place = (i, number) => [PAD + number * (along + gapAlong), PAD + middle[i] - least];
  const at = [];
  layers.forEach((list, number) => list.forEach((i) => (at[i] = place(i, number))));
  const spots = parents.map((_, i) => {
    const [a, m] = at[i];
    return down ? { x: m - across / 2, y: a } : { x: a, y: m - across / 2 };
  });
  const long = layers.length * (along + gapAlong) - gapAlong + 2 * PAD;
  const wide = most - least + 2 * PAD;
  return {
    spots,
    edges: edges.map((edge) => ({ ...edge, d: line(at, edge, along, down) })),
    width: down ? wide : long,
    height: down ? long : wide,
  };
}

function order(layers, above, below) {
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const forward = sweep % 2 === 0;
    const place = new Map();
    const settled = (list) => list.forEach((i, row) => place.set(i, row - (list.length - 1) / 2));
    layers.forEach(settled);
    for (const list of forward ? layers : [...layers].reverse()) {
      const key = new Map(
        list.map((i) => {
          const near = forward ? above[i] : below[i];
          return [i, near.length ? mean(near.map((n) => place.get(n))) : place.get(i)];
        }),
      );
      list.sort((a, b) => key.get(a) - key.get(b));
      settled(list);
    }
  }
}

/** Middles across the layers: wanted is the mean of the neighbours, kept is the order. */
function settle(layers, above, below, size, gap) {
  const middle = [];
  for (const list of layers) {
    let at = 0;
    const sum = list.reduce((total, i) => total + size(i) + gap, -gap);
    for (const i of list) {
      middle[i] = at + size(i) / 2 - sum / 2;
      at += size(i) + gap;
    }
  }
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const forward = sweep % 2 === 0;
    for (const list of forward ? layers : [...layers].reverse()) {
      const wanted = list.map((i) => {
        const near = forward ? above[i] : below[i];
        return near.length ? mean(near.map((n) => middle[n])) : middle[i];
      });
      spread(list, wanted, size, gap).forEach((m, k) => (middle[list[k]] = m));
    }
  }
  return middle;
}

/** Nearest to what is wanted in least squares, in order and apart (pool adjacent violators). */
function spread(list, wanted, size, gap) {
  const offset = [0];
  for (let k = 1; k < list.length; k += 1)
    offset[k] = offset[k - 1] + (size(list[k - 1]) + size(list[k])) / 2 + gap;
  const blocks = [];
  wanted.forEach((value, k) => {
    let block = { sum: value - offset[k], count: 1 };
    while (blocks.length && blocks.at(-1).sum / blocks.at(-1).count >= block.sum / block.count) {
      const last = blocks.pop();
      block = { sum: last.sum + block.sum, count: last.count + block.count };
    }
    blocks.push(block);
  });
  const found = [];
  for (const { sum, count } of blocks)
    for (let k = 0; k < count; k += 1) found.push(sum / count + offset[found.length]);
  return found;
}

const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;
const round = (value) => Math.round(value * 10) / 10;

/** A line from box to box through its thin places. */
function line(at, { parent, child, via }, along, down) {
  const point = (a, m) => (down ? `${round(m)} ${round(a)}` : `${round(a)} ${round(m)}`);
  let [a, m] = [at[parent][0] + along, at[parent][1]];
  let text = `M${point(a, m)}`;
  for (const stop of [...via, child]) {
    const [to, middle] = at[stop];
    const bend = (to - a) / 2;
    text += `C${point(a + bend, m)} ${point(to - bend, middle)} ${point(to, middle)}`;
    [a, m] = [to, middle];
    if (stop !== child) {
      a += along;
      text += `L${point(a, m)}`;
    }
  }
  return text;
}
