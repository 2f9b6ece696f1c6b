//! Writes the odd and malformed packets that both parsers are tried with, as a file for tcpdump and Wireshark; each packet's comment
//! is its name, by which a test that fails calls it. `cargo run -p ringside-gateway-core --example corpus -- FILE [SEED]`

use ringside_gateway_core::testing::corpus::{SEED, corpus};
use ringside_gateway_core::testing::pcapng::pcapng;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("which file is to be written?")?;
    let seed = arguments.next().map_or(Ok(SEED), |seed| seed.parse())?;
    let frames = corpus(seed);
    std::fs::write(&file, pcapng(&frames))?;
    println!("{file}: {} frames", frames.len());
    Ok(())
}
