//! Sends every packet back where it came from, with its MAC addresses swapped, a thread per queue.
//!
//! ```text
//! cargo run --release -p ringside-xsk --example reflect -- eth0 ethertype:0x88b5 10
//! ```
//!
//! The second argument is what to take from the interface: `all`, `udp:PORT` or any other filter
//! (see the README); the third is for how many seconds.

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ringside_xsk::{Filter, Interface, Port, Wait};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("reflect: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().ok_or("usage: reflect INTERFACE [FILTER [SECONDS]]")?;
    let filter: Filter = arguments.next().as_deref().unwrap_or("all").parse()?;
    let seconds: u64 = arguments.next().as_deref().unwrap_or("10").parse()?;

    let mut port = Port::builder(Interface::by_name(&name)?).filter(filter).open()?;
    eprintln!("{}", port.report());

    let end = Instant::now() + Duration::from_secs(seconds);
    std::thread::scope(|scope| {
        let workers: Vec<_> = port
            .queues_mut()
            .map(|queue| {
                scope.spawn(move || -> Result<(), ringside_xsk::Error> {
                    while Instant::now() < end {
                        let mut burst = queue.recv(Wait::Poll(Duration::from_millis(100)))?;
                        for mut packet in &mut burst {
                            match packet.data_mut() {
                                // A group address can be no source.
                                data if data.len() >= 14 && data[0] & 1 == 0 => data[..12].rotate_left(6),
                                _ => packet.drop(),
                            }
                        }
                        burst.send_back().or_else(ringside_xsk::Error::ignore_link_down)?;
                    }
                    let drained = queue.drain(Duration::from_millis(100)).map(drop);
                    drained.or_else(ringside_xsk::Error::ignore_link_down)
                })
            })
            .collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().expect("no panic"))
    })?;

    let own = port.stats()?.own;
    println!(
        "{} packets received, {} sent back with {} calls",
        own.rx_packets, own.tx_packets, own.tx_kicks
    );
    Ok(())
}
