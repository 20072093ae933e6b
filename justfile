# Recipes for those who work on Skein. `cargo` alone does everything too; these are short names.

# Build everything
build:
    cargo build --workspace --all-targets

# The whole suite; says what is missing
test *args:
    ./tests/run {{args}}

# What a change must pass before it is handed in
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings

# Write the wire code anew after a change to proto/
proto:
    SKEIN_REGENERATE=1 cargo test -p skein-proto --test generated

# The swarm on this machine
up *args:
    cargo run --release -- up {{args}}

demo *args:
    cargo run --release -- demo {{args}}

# What the continuous integration runs
ci:
    .ci/run
