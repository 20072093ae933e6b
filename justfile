# Recipes for those who work on Skein. `cargo` alone does everything too; these are short names.

# Build everything
build:
    cargo build --workspace --all-targets

# The whole suite; says what is missing
test *args:
    ./tests/run {{args}}

# The tests that draw faults from a seed, for much longer: `just ci-long`, or with seconds and a seed of your own
ci-long seconds="600" *args:
    SKEIN_NEMESIS_SECONDS={{seconds}} ./tests/run --profile long -E 'test(/whatever_breaks/)' --no-capture {{args}}

# What a change must pass before it is handed in
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --features skein-tests/mutations -- -D warnings

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

# What the continuous integration runs
ci:
    .ci/run
