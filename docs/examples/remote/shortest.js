// A matcher in JavaScript: the application with the least work left goes first.
//
// In this folder of Weft's sources, or in another one with the way to their `proto`:
//
//   npm install @grpc/grpc-js @grpc/proto-loader
//   node shortest.js ../../../proto/matcher.proto 50100
const grpc = require('@grpc/grpc-js');
const proto = grpc.loadPackageDefinition(
  require('@grpc/proto-loader').loadSync(process.argv[2], {keepCase: true, longs: String}));

const server = new grpc.Server();
server.addService(proto.weft.Matcher.service, {
  Describe: (call, answer) => answer(null, {name: 'shortest'}),
  Match: (call, answer) => answer(null, {
    pick: call.request.candidate
      .map((c, i) => ({candidate: i, copies: c.pending, remaining: c.remaining}))
      .sort((a, b) => a.remaining - b.remaining),
  }),
});
server.bindAsync(`127.0.0.1:${process.argv[3]}`, grpc.ServerCredentials.createInsecure(),
  () => console.log('serving'));
