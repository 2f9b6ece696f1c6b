//! The overlay gateway.

fn main() {}
