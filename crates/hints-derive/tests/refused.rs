//! What `#[derive(Hints)]` refuses, each for its reason: what the compiler says is beside each case in `tests/refused`.
//!
//! After a change: `TRYBUILD=overwrite cargo test -p ringside-hints-derive`, and read what it says now.

#[test]
fn nonsense_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/refused/*.rs");
}
