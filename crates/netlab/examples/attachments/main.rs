//! Measures ways to attach a guest side by side: one guest, a NIC for each, probes over all of them in turns.
//!
//! ```text
//! cargo run -p ringside-netlab --example attachments -- tap-bridge xdp xdp-express --load 3
//! cargo run -p ringside-netlab --example attachments -- tap-bridge xdp xdp:len=50 xdp:generic --rounds 5 --load 3
//! ```
//!
//! Words are ways (docs/attachments.md), each with options behind a colon, by commas:
//!
//! | option | |
//! |---|---|
//! | `len=N` | packets that may wait in the TAP device |
//! | `queues=N` | queues of the guest's NIC |
//! | `generic` | XDP in the stack |
//! | `no-gro` | the other end of the veth does not poll: what XDP sends there is lost |
//!
//! `--rounds N` (5), `--probes N` (500 in each round), `--interval US` (2000), `--load N` (0) TCP streams to the guest by the way that is
//! probed, `--pace MBIT` so fast altogether, `--ringside PATH` (the forwarder), `--cpus N` (2, the guest's). As root.
//!
//! A probe is a UDP datagram of a kernel's socket that a kernel's socket in the guest sends back; its time is the round trip. What
//! that takes in a guest that is emulated says nothing about hardware; compare within one run.

mod far;
mod options;
mod probe;
mod statistics;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use ringside_bpf::{RingSeen, TapRings, XdpEventKind, XdpEvents};
use ringside_netlab::attach::{Attachment, Uplink, Way};
use ringside_netlab::guest::{Agent, Guest, GuestConfig, Kernel, agent};
use ringside_netlab::{Lab, VethConfig};

use self::options::{Candidate, Options};
use self::probe::{Load, Round};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// One way that is measured, with its hosts.
struct Line {
    candidate: Candidate,
    lab: Lab,
    attachment: Attachment,
    rounds: Vec<Round>,
}

fn main() -> Outcome<ExitCode> {
    // The guest's first process is this program, too, and so are the programs at its far end.
    if agent::is_asked_for() {
        return Ok(agent::main());
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [role] = &arguments[..]
        && far::is_role(role)
    {
        far::run(role)?;
        return Ok(ExitCode::SUCCESS);
    }
    let options = Options::parse(&arguments)?;
    let mut paths = Vec::new();
    for (number, candidate) in (1..).zip(&options.candidates) {
        paths.push(make(candidate, number, &options)?);
    }
    let guest = boot(&paths, &options)?;
    eprintln!(
        "Linux {} on {}, ready after {:.1} s: what times in it are worth is in docs/guests.md",
        guest.release(),
        guest.accelerator().name(),
        guest.boot_time().as_secs_f64()
    );
    let own = std::env::current_exe()?;
    let mut echo = guest.command(&own).arg(far::ECHO).spawn()?;
    let mut sink = guest.command(&own).arg(far::SINK).spawn()?;
    for child in [&mut echo, &mut sink] {
        child.wait_for("ready", Duration::from_secs(30))?;
    }
    let events = XdpEvents::start()?;
    measure(&mut paths, &options)?;
    for event in events.counts()? {
        if let XdpEventKind::Redirect(errno) = event.kind {
            println!(
                "xdp_redirect_err: {} times errno {errno}, interface {}",
                event.count, event.interface
            );
        }
    }
    statistics::print(&paths, &options, guest.accelerator().name());
    Ok(ExitCode::SUCCESS)
}

fn make(candidate: &Candidate, number: u8, options: &Options) -> Outcome<Line> {
    let lab = Lab::veth(VethConfig {
        hosts: [1, 0],
        subnet: number,
        ipv6: false,
        queues: candidate.queues,
        ..VethConfig::tagged(format!("m{number}"))
    })?;
    let config = candidate.config(number, options);
    let attachment = Attachment::make(candidate.way, &Uplink::of(&lab), &config)?;
    if candidate.no_gro {
        lab.a.run(|| lab.a.interface.set_feature("rx-gro", false))?;
    }
    Ok(Line {
        candidate: candidate.clone(),
        lab,
        attachment,
        rounds: Vec::new(),
    })
}

fn boot(paths: &[Line], options: &Options) -> Outcome<Guest> {
    let own = std::env::current_exe()?;
    let mut config = GuestConfig::new("attachments", Kernel::usual()?, Agent::program(&own));
    config.cpus = options.cpus;
    config.programs = ["sh", "ip", "cat"].map(Into::into).to_vec();
    config.programs.push(own);
    let mut script = String::from("set -e\n");
    for (number, path) in (1..).zip(paths) {
        let name = format!("eth{number}");
        config.nics.push(path.attachment.nic(&name));
        script.push_str(&format!(
            "ip addr add 10.77.{number}.2/24 dev {name}\nip link set {name} up\n"
        ));
    }
    let guest = Guest::start(&config)?;
    let done = guest.command("sh").args(["-c", &script]).output()?;
    if !done.status.success() {
        return Err(String::from_utf8_lossy(&done.stderr).into());
    }
    Ok(guest)
}

/// A round of each path in turn, so that what changes on the machine meanwhile meets all of them.
fn measure(paths: &mut [Line], options: &Options) -> Outcome<()> {
    let taps = TapRings::start()?;
    for round in 0..=options.rounds {
        for path in &mut *paths {
            path.attachment.check()?;
            let load = Load::start(&path.lab.a, options)?;
            let before = Counters::read(path)?;
            let waited = rings(&taps, path)?;
            let begin = Instant::now();
            let mut measured = probe::round(&path.lab.a, options)?;
            measured.seconds = begin.elapsed().as_secs_f64();
            measured.ring = match (rings(&taps, path)?, waited) {
                (Some(after), Some(before)) => Some(after.since(&before)),
                (after, _) => after,
            };
            let after = Counters::read(path)?;
            measured.load_mbit = load.stop();
            measured.dropped = after.dropped.saturating_sub(before.dropped);
            measured.packets = after.packets.saturating_sub(before.packets);
            measured.bytes = after.bytes.saturating_sub(before.bytes);
            // The first one finds addresses unresolved and caches cold.
            if round > 0 {
                path.rounds.push(measured);
            }
            // What still waits somewhere is not the next one's.
            thread::sleep(Duration::from_millis(100));
        }
    }
    Ok(())
}

/// What packets have found waiting for the guest so far.
fn rings(taps: &TapRings, path: &Line) -> Outcome<Option<RingSeen>> {
    let Some(tap) = path.attachment.tap() else {
        return Ok(None);
    };
    Ok(taps.seen(path.lab.b.ns.cookie()?, tap.device.interface.index())?)
}

/// What the guest's device has passed to the guest, and had no room for.
struct Counters {
    dropped: u64,
    packets: u64,
    bytes: u64,
}

impl Counters {
    fn read(path: &Line) -> Outcome<Self> {
        let Some(tap) = path.attachment.tap() else {
            return Ok(Self {
                dropped: 0,
                packets: 0,
                bytes: 0,
            });
        };
        let name = tap.device.interface.name().to_owned();
        // What a macvtap device passes to the guest it has received from the uplink.
        let side = if path.candidate.way == Way::Macvtap { "rx" } else { "tx" };
        let read = |what: &str| -> Outcome<u64> {
            let file = Path::new("/sys/class/net")
                .join(&name)
                .join("statistics")
                .join(format!("{side}_{what}"));
            let text = tap.device.ns.run(|| std::fs::read_to_string(file))?;
            Ok(text.trim().parse()?)
        };
        // Of a burst that XDP redirects the device counts one.
        let lost = match &path.attachment {
            Attachment::Xdp(xdp) => xdp.lost()?,
            _ => None,
        };
        Ok(Self {
            dropped: read("dropped")? + lost.unwrap_or_default(),
            packets: read("packets")?,
            bytes: read("bytes")?,
        })
    }
}
