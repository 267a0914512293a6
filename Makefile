# Every target sets up what it needs; a fresh machine needs Python 3.11+ and make only.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2

.PHONY: pictures members floods hardships meetings quick yarn-compare first-minute bench-check failover soak tapes docs spark-test yarn-clients spark-hundred spark-queues spark-start dask-yarn fuzz-messages dist dist-native dist-same dist-test sbom release news test-python demo test check mutants figures walks format fuzz restart fuzz-coverage fuzz-planted chaos bench proto gangs diagrams dashboards dashboards-check image image-test wheelhouse testbed testbed-spark mapreduce-tez spark-study native native-test clean help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(VENV)/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Weft needs Python 3.11 or newer; set PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml constraints.txt | $(VENV)/bin/pip
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[plot,traces]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/pip
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/.run

demo: $(VENV)/.run ## start a local cluster, run the sample jobs on it, print their table
	$(BIN)/weft demo

news: $(VENV)/.dev ## what the files in changes/ will say in the CHANGELOG
	$(BIN)/towncrier build --draft --version next

quick: $(VENV)/.dev ## what guards most in a minute: no live cluster, no slow test
	$(BIN)/pytest -n $(WORKERS) -m "not slow" --ignore tests/live

# Kernels run as plain Python here: compiling them anew takes longer than all of these tests. Not every
# package of the development environment is there, so some tests skip.
test-python: ## the quick tests of the cores on another Python (PYTHON=python3.13), in an environment of its own
	$(PYTHON) -m venv build/python
	build/python/bin/pip install --quiet --disable-pip-version-check -c constraints.txt \
		-e '.[analyse,gym,plot,results,tls,traces]' pytest pytest-timeout pytest-xdist hypothesis
	WEFT_NO_SKIP=0 NUMBA_DISABLE_JIT=1 build/python/bin/python -m pytest -p no:cacheprovider -n $(WORKERS) \
		--hypothesis-profile=gate -m "not slow" \
		tests/unit tests/wire tests/transcripts tests/golden --ignore tests/unit/test_first_compile.py

# tests/conftest.py has the order of the files
test: $(VENV)/.dev ## the whole test suite
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

check: $(VENV)/.dev ## format, lint, types, walls, stubs, protos, diagrams, words
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/make_proto.py --check
	$(BIN)/python -m tools.proto_breaks
	$(BIN)/python -m tools.prose
	$(BIN)/python -m tools.draw_lifecycles --check
	$(BIN)/python -m tools.draw_settings --check
	$(BIN)/python -m tools.draw_yarn --check
	$(BIN)/python tools/make_dashboards.py --check

mutants: $(VENV)/.dev ## ten minutes of mutation testing of the code that decides; prints survivors
	$(BIN)/python -m tools.mutants

figures: $(VENV)/.dev ## sizes of functions and files, kernels' parameters, imports, words
	$(BIN)/python -m tools.figures

walks: $(VENV)/.dev ## how many functions and files an event passes through
	$(BIN)/python -m tools.walks

format: $(VENV)/.dev ## format and mend what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

fuzz-messages: $(VENV)/.run ## hostile messages to the cores (SECONDS=600) and live services (LIVE=60000)
	$(BIN)/python -m tools.message_fuzz --seconds $(or $(SECONDS),600)
	$(BIN)/python -m tools.message_fuzz --live $(or $(LIVE),60000)

proto: $(VENV)/.dev ## regenerate the stubs
	$(BIN)/python tools/make_proto.py

gangs: $(VENV)/.dev ## does every gang start whole? 1,000 random workloads under every preset
	$(BIN)/python -m sim gangs 0 1000

members: $(VENV)/.dev ## what do five members cost against one manager? completion times, shares (NODES=1000 SEEDS=3)
	$(BIN)/python -m lab.studies.members completion --nodes $(or $(NODES),1000) --seeds $(or $(SEEDS),3)
	$(BIN)/python -m lab.studies.members shares --nodes $(or $(NODES),1000) --seeds $(or $(SEEDS),3)
	$(BIN)/python -m lab.studies.members shares --nodes $(or $(NODES),1000) --seeds $(or $(SEEDS),3) --fixed

meetings: $(VENV)/.dev ## do all promises hold where three features meet? 400 small clusters, faults after
	$(BIN)/python -m testkit.meetings --triples --processes $(WORKERS)
	$(BIN)/python -m testkit.meetings --faults --triples --processes $(WORKERS)

meetings-planted: $(VENV)/.dev ## plant 18 faults where features meet: how many does one pass over the pairs find?
	$(BIN)/python -m tools.plant_meetings --processes $(WORKERS)

diagrams: $(VENV)/.dev ## redraw the life cycles and the settings in docs/
	$(BIN)/python -m tools.draw_lifecycles
	$(BIN)/python -m tools.draw_settings
	$(BIN)/python -m tools.draw_yarn

pictures: $(VENV)/.dev ## run the commands of docs/course and draw what was in use
	$(BIN)/python -m tools.draw_course

dashboards: $(VENV)/.dev ## rewrite the Grafana dashboards
	$(BIN)/python tools/make_dashboards.py

dashboards-check: $(VENV)/.dev ## are the dashboards what the code makes?
	$(BIN)/python tools/make_dashboards.py --check

image: ## build the container image weft:dev
	docker build -f deploy/Dockerfile -t weft:$(or $(WEFT_TAG),dev) .

image-test: $(VENV)/.dev ## build the image, run the composed cluster through faults
	$(BIN)/python tools/check_image.py

spark-test: $(VENV)/.run ## unmodified Spark on a fresh cluster: client mode, kill, loss of a master
	$(BIN)/python -m tools.check_spark

yarn-clients: $(VENV)/.run ## the whole harness of YARN clients (CASES=, TIMES=1, SPARK=3.5.3, DISK=)
	$(BIN)/python -m tools.check_spark --harness --times $(or $(TIMES),1) \
		--spark-version $(or $(SPARK),3.5.3) --work build/yarn-clients $(if $(DISK),--disk) $(CASES)

spark-hundred: $(VENV)/.run ## small Spark jobs in a row, each must succeed (RUNS=100)
	$(BIN)/python -m tools.spark_runs hundred --runs $(or $(RUNS),100)

spark-queues: $(VENV)/.run ## six Spark applications in two queues, with preemption
	$(BIN)/python -m tools.spark_runs queues

spark-start: $(VENV)/.run ## where the time to a Spark job's first task goes (TIMES=3)
	$(BIN)/python -m tools.spark_start --times $(or $(TIMES),3)

spark-study: $(VENV)/.run ## twelve Spark applications at once under four schedulers (TIMES=3, SCHEDULERS=)
	$(BIN)/python -m tools.spark_study --times $(or $(TIMES),3) $(if $(SCHEDULERS),--schedulers $(SCHEDULERS))

mapreduce-tez: $(VENV)/.run ## unmodified MapReduce and Tez, also with containers and nodes lost (CASES=)
	$(BIN)/python -m tools.check_engines $(CASES)

dask-yarn: $(VENV)/.run ## dask-yarn sums on two workers
	$(BIN)/python -m tools.spark_runs dask

wheelhouse: $(VENV)/.dev ## what hosts install Weft from without a network, in build/wheelhouse
	$(BIN)/python tools/make_wheelhouse.py

testbed-spark: $(VENV)/.dev ## unmodified Spark on three such hosts, one lost under way (root)
	$(BIN)/python -m tools.testbed --spark

testbed: $(VENV)/.dev ## install on four hosts made of namespaces, run real jobs through faults (root)
	$(BIN)/python -m tools.testbed

fuzz: $(VENV)/.dev ## search 10,000 seeds for faults that break a promise (SEEDS=A:B)
	$(BIN)/weft fuzz --seeds $(or $(SEEDS),0:10000)

restart: $(VENV)/.run ## after a restart, how soon is a large cluster adopted? (NODES=1000 JOBS=500)
	$(BIN)/python -m tools.restart --nodes $(or $(NODES),1000) --jobs $(or $(JOBS),500)

failover: $(VENV)/.dev ## kill the leading manager 20 times under load (NODES=300 JOBS=50 KILLS=20)
	$(BIN)/python -m tools.failover --nodes $(or $(NODES),300) --jobs $(or $(JOBS),50) \
		--kills $(or $(KILLS),20)

fuzz-coverage: $(VENV)/.dev ## which lines of the cores does the fault search reach? (SEEDS=A:B)
	$(BIN)/python -m tools.fuzz_coverage --seeds $(or $(SEEDS),0:300)

fuzz-planted: $(VENV)/.dev ## plant known bugs: does the search find each in under 1,000 seeds?
	$(BIN)/python -m tools.plant_bugs

chaos: $(VENV)/.dev ## kill and pause parts of a live cluster, SECONDS=300 in each mode (LOSS=PERCENT, ROUGH=1: partitions, full disks)
	for mode in process emulated; do $(BIN)/python -m tools.chaos --seconds $(or $(SECONDS),300) --mode $$mode \
	  --nodes 6 --long-pauses 0.03 --loss $(or $(LOSS),0) $(if $(ROUGH),--partitions --disks) || exit 1; done

hardships: $(VENV)/.dev ## clocks that jump, no memory, stubborn processes, a full or damaged journal, three etcd members, 300 node managers, 20,000 tasks' files (root; NAMES=)
	$(BIN)/python -m tools.hardships $(NAMES)

floods: $(VENV)/.dev ## 45 floods of a live cluster: memory of every service, p99 of honest calls (FLOODS=NAMES)
	$(BIN)/python -m tools.floods $(FLOODS)

tapes: $(VENV)/.dev ## record 22 live runs with faults and replay them: is every decision the same?
	$(BIN)/python -m tools.tapes

docs: $(VENV)/.dev ## the docs as a site, in build/site; a bad link fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

dist: $(VENV)/.dev ## the wheel and the sdist, in dist/, the same bytes for the same commit
	$(BIN)/python -m tools.make_dist

dist-same: dist $(if $(NATIVE),dist-native) ## build again elsewhere: are the bytes the same? (NATIVE=1: the compiled wheel, too)
	$(BIN)/python -m tools.make_dist --same $(if $(NATIVE),--native)

dist-native: native dist ## a wheel with compiled cores for this platform, in dist/native
	$(BIN)/python -m tools.make_native_wheel

dist-test: $(if $(NATIVE),dist-native,dist) ## install what is in dist/ with pipx and uvx and run the demo and a tutorial (NATIVE=1: the compiled wheel)
	$(BIN)/python -m tools.try_dist $(if $(NATIVE),--native)

sbom: dist ## all packages of an installation with their versions and licences (CycloneDX), in dist/
	rm -rf build/sbom && $(PYTHON) -m venv build/sbom/tool && $(PYTHON) -m venv --without-pip build/sbom/weft
	build/sbom/tool/bin/pip install --quiet --disable-pip-version-check cyclonedx-bom
	build/sbom/tool/bin/pip --python build/sbom/weft install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
	build/sbom/tool/bin/cyclonedx-py environment build/sbom/weft --pyproject pyproject.toml --gather-license-texts \
		--output-reproducible -o dist/$$(basename dist/*.tar.gz .tar.gz).cdx.json

release: ## all files of a release, in dist/, built twice and tried (docs/versions.md)
	$(MAKE) dist-same NATIVE=1
	$(MAKE) sbom dist-test

soak: $(VENV)/.dev ## a day of 20,000 applications on a fast clock: is every process flat? 15 minutes
	$(BIN)/python -m tools.soak

native: $(VENV)/.dev ## compile the cores into build/native (needs a C compiler), up to twice as fast
	$(BIN)/python -m tools.make_native

native-test: native ## does the native build decide as plain Python does?
	$(BIN)/python -m tools.check_native

yarn-compare: $(VENV)/.run ## the same scenarios through the real YARN (Java, Maven) and Weft (CASES=FOLDER)
	$(BIN)/python -m lab.yarn.compare $(or $(CASES),build/yarn/cases)

bench-check: $(VENV)/.dev ## is anything 15 % slower than docs/bench.jsonl says? (WRITE=1 adds a line)
	$(BIN)/python -m lab.bench.check $(if $(WRITE),--write)

first-minute: $(VENV)/.run ## does a process of a fresh cluster stall? each preset for a minute (PRESETS=, SECONDS=60)
	$(BIN)/python -m tools.first_minute $(PRESETS) --seconds $(or $(SECONDS),60)

bench: $(VENV)/.dev ## every benchmark of the README, natively as well where there is a C compiler
	-$(BIN)/python -m tools.make_native
	for what in match plan sim live codec; do $(BIN)/weft bench $$what || exit 1; done

clean: ## remove what the targets made
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
