# Recipes for those who work on Skein. `cargo` alone does everything too; these are short names.

# Build everything
build:
    cargo build --workspace --all-targets

# The whole suite; says what is missing
test *args:
    ./tests/run {{args}}

# What takes long or needs a Docker daemon: fifty times as many simulations, real processes that are broken for some seconds,
# and containers; and the Inspector started for each of its calls
ci-long seconds="600" *args:
    SKEIN_SIM_SEEDS=50000 cargo test --release -p skein-tests --test sim
    SKEIN_ROUNDS=1000 cargo test -p skein-runner --test runs leaks
    SKEIN_INSPECTOR_PROGRAMS=all ./tests/run --profile long -E 'binary(matrix) and test(/inspector/)'
    SKEIN_NEMESIS_SECONDS={{seconds}} ./tests/run --profile long -E 'binary(nemesis)' --no-capture {{args}}
    SKEIN_ROUNDS=1000 SKEIN_TEST_FEATURES=skein-tests/image-tests ./tests/with-docker ./tests/run --profile long -E 'binary(nemesis_contained) + binary(images) + binary(engines) + binary(agents_contained) + binary(containment)'

# What a change must pass before it is handed in
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --features skein-tests/mutations,skein-tests/otlp,skein-tests/image-tests -- -D warnings

# Write the wire code anew after a change to proto/
proto:
    SKEIN_REGENERATE=1 cargo test -p skein-proto --test generated

# Measures: `just bench NAME`, `just bench all`, `just bench list`, `just bench compare FILE`;
# `just bench cpu_budget --update` keeps what it finds as the new budget
bench what *args:
    cargo build --release --bins -p skein-coordinator -p skein-runner -p skein-tests
    cargo run --release -p skein-tests --bin skein-bench -- {{ if what =~ '^(compare|list)$' { what } else { "run " + what } }} {{args}}

# The swarm on this machine
up *args:
    cargo run --release -- up {{args}}

demo *args:
    cargo run --release -- demo {{args}}

# Replays one seed of the simulation and prints all that happens: `just sim 0x1f3a`
sim seed:
    SKEIN_SEED={{seed}} cargo test -p skein-tests --test sim replay -- --ignored --nocapture

# What the continuous integration runs
ci:
    .ci/run
