//! What runs beside the probes: our own streams of UDP packets, and programs.
//!
//! A program is started by the thread that runs the lab and dies with it. One that ends before it is told to ends the run.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result, anyhow, ensure};
use ringside_measure::control::LoadsEnd;
use ringside_measure::schema::LabLoad;
use ringside_netlab::find_program;
use ringside_netlab::guest::{Guest, GuestChild};
use ringside_netlab::{End, Namespace, spawn_with_offspring, wait_until};
use ringside_nic::Knob;
use rustix::process::{Pid, Signal, kill_process};

use super::bed::{Bed, Course};
use super::file::Bitrate;
use super::plan::{Load, Plan, Probe, Way, Work};
use super::schedule::text;
use super::tcp::{self, Streams};
use super::{machine, udp};
use crate::pin;
use crate::report::units;
use crate::serve::Far;

/// Of the first load, if it is of iperf3; the next one has the next port, wherever its server is.
const IPERF3_PORT: u16 = 5_201;
/// Ethernet, IPv4 and UDP.
const HEADERS: u16 = 42;
/// How long a program may take until it does its work.
const START: Duration = Duration::from_secs(5);
/// The same in a guest whose CPUs are emulated.
const START_INSIDE: Duration = Duration::from_secs(60);
/// How long iperf3 may take to say what it did.
const END: Duration = Duration::from_secs(10);
/// iperf3 ends by itself after a time: longer than any turn.
const LONGER_THAN_A_TURN: &str = "86400";

/// The loads that are on; off when it is dropped.
#[derive(Default)]
pub(super) struct Running<'b> {
    on: Vec<On<'b>>,
    /// What receives them on other machines: ends behind them.
    receivers: Vec<Far>,
    begun: Option<Instant>,
    is_broken: bool,
}

/// A load that is on.
struct On<'b> {
    name: String,
    description: String,
    udp: Option<udp::Stream>,
    tcp: Option<Tcp>,
    programs: Vec<Program>,
    inside: Option<Inside<'b>>,
    iperf3: Option<Iperf3>,
}

/// Which of the programs is who.
struct Iperf3 {
    client: usize,
    /// `None` where it is in a guest.
    server: Option<usize>,
    asked_bits_per_s: Option<f64>,
}

/// Our own TCP streams.
struct Tcp {
    streams: Streams,
    /// Of all of them.
    asked_bits_per_s: Option<f64>,
    has_requests: bool,
}

struct Program {
    what: String,
    child: Child,
    output: File,
    errors: File,
}

/// A program in a guest.
struct Inside<'b> {
    what: String,
    child: GuestChild<'b>,
}

impl<'b> Running<'b> {
    /// Starts the loads that are to be on beside the probes of a path.
    pub(super) fn start(plan: &Plan, bed: &'b Bed, probe: &Probe) -> Result<Self> {
        let mut running = Self {
            receivers: bed.receive(plan, probe)?,
            ..Self::default()
        };
        for number in &probe.loads {
            let load = plan.loads.get(*number).context("a load of the lab")?;
            let on = start(plan, load, (bed, probe.way));
            running.on.push(on.with_context(|| format!("the load {}", load.name))?);
        }
        running.begun = Some(Instant::now());
        Ok(running)
    }

    /// Whether they all go on.
    ///
    /// # Errors
    /// Which one does not, and why.
    pub(super) fn check(&mut self) -> Result<()> {
        for on in &mut self.on {
            if let Err(error) = on.check() {
                self.is_broken = true;
                return Err(error.context(format!("the load {}", on.name)));
            }
        }
        Ok(())
    }

    /// Whether one of them did not go on.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Ends them; what they did.
    pub(super) fn end(mut self) -> Result<Vec<LabLoad>> {
        self.check()?;
        let seconds = self.begun.map_or(0.0, |begun| begun.elapsed().as_secs_f64());
        let done = self.on.drain(..).map(|on| on.end(seconds)).collect();
        // Who asked a receiver what came has its answer now.
        self.receivers.clear();
        done
    }
}

fn start<'b>(plan: &Plan, load: &Load, (bed, path): (&'b Bed, Way)) -> Result<On<'b>> {
    let number = load.number;
    let mut on = On {
        name: load.name.clone(),
        description: describe(plan, load),
        udp: None,
        tcp: None,
        programs: Vec::new(),
        inside: None,
        iperf3: None,
    };
    match &load.what {
        Work::Udp { way, rate, size } => {
            let course = bed.course(plan, way.unwrap_or(path))?;
            let packets = udp::Packets {
                rate: *rate,
                payload: size.saturating_sub(HEADERS).max(1),
            };
            on.udp = Some(udp::Stream::start(packets, number, &course, &load.cpus)?);
        }
        Work::Tcp { way, streams, stream } => {
            let course = bed.course(plan, way.unwrap_or(path))?;
            let at = SocketAddr::new(IpAddr::V4(course.at), tcp::port(number, course.to.is_none()));
            let asked = match stream {
                tcp::Stream::Bulk { bits_per_s, .. } => *bits_per_s,
                tcp::Stream::Requests { .. } => None,
            };
            on.tcp = Some(Tcp {
                streams: Streams::start(*stream, *streams, &course, at, &load.cpus)?,
                asked_bits_per_s: asked.map(|bits| bits * f64::from(*streams)),
                has_requests: matches!(stream, tcp::Stream::Requests { .. }),
            });
        }
        Work::Iperf3 {
            way,
            udp,
            bitrate,
            streams,
            size,
        } => {
            let port = iperf3_port(number);
            let Course { from, to, at, .. } = bed.course(plan, way.unwrap_or(path))?;
            // In a guest it runs already, and on another machine its server or somebody has started it.
            if let Some(to) = to {
                on.programs.push(iperf3_server(to, port)?);
                let is_there = || listens(&to.ns, port);
                ensure!(
                    wait_until(START, is_there) || on.check().is_err(),
                    "iperf3 -s does not listen on port {port} after {START:?}"
                );
                on.check()?;
            }
            let mut options = vec!["-t".to_owned(), LONGER_THAN_A_TURN.to_owned()];
            options.extend(["-P".to_owned(), streams.to_string(), "-J".to_owned()]);
            options.extend(udp.then(|| "-u".to_owned()));
            if let Some(bitrate) = bitrate {
                options.extend(["-b".to_owned(), bitrate.clone()]);
            }
            if let Some(size) = size {
                options.extend(["-l".to_owned(), size.saturating_sub(HEADERS).to_string()]);
            }
            on.iperf3 = Some(Iperf3 {
                client: on.programs.len(),
                server: (!on.programs.is_empty()).then_some(0),
                asked_bits_per_s: (bitrate.clone().and_then(|rate| Bitrate(rate).bits_per_s()))
                    .map(|rate| rate * f64::from(*streams)),
            });
            let client = start_iperf3_client(from, (at, port), &options, &load.cpus)?;
            on.programs.push(client);
        }
        Work::Program {
            command,
            guest: Some(guest),
            begins,
        } => {
            bed.has(Way::Guest(*guest))?;
            let machine = bed.machine(plan, *guest)?;
            on.inside = Some(Inside::start(machine, command, &load.cpus, *begins)?);
        }
        Work::Program { command, .. } => {
            let name = name(command);
            let mut program = bed.here.command(name);
            program.args(command.iter().skip(1));
            on.programs.push(Program::start(name, program, &load.cpus)?);
        }
    }
    Ok(on)
}

/// What has to be there of receivers for these loads, at an end that is no namespace of this machine.
pub(super) fn receivers(plan: &Plan, mut is_wanted: impl FnMut(usize, &Load) -> bool) -> LoadsEnd {
    let mut end = LoadsEnd::default();
    for (number, load) in plan.loads.iter().enumerate() {
        match &load.what {
            Work::Udp { .. } | Work::Tcp { .. } if is_wanted(number, load) => end.sink = true,
            // One for each load, for a server has one client.
            Work::Iperf3 { .. } if is_wanted(number, load) => {
                end.iperf3.push(iperf3_port(load.number));
            }
            _ => {}
        }
    }
    end
}

/// For those of the loads beside these probes that go to another machine.
pub(super) fn receivers_at(plan: &Plan, probes: &[Probe], way: Way) -> LoadsEnd {
    receivers(plan, |number, load| {
        let own = match &load.what {
            Work::Udp { way, .. } | Work::Tcp { way, .. } | Work::Iperf3 { way, .. } => *way,
            Work::Program { .. } => return false,
        };
        let goes_there = |probe: &Probe| probe.loads.contains(&number) && own.unwrap_or(probe.way) == way;
        probes.iter().any(goes_there)
    })
}

fn iperf3_server(at: &End, port: u16) -> Result<Program> {
    let mut server = at.ns.command("iperf3");
    server.args(["-s", "-1", "-J", "-B", &at.ipv4.to_string(), "-p", &port.to_string()]);
    Program::start("the server of iperf3", server, &[])
}

/// Port of the server that a load of iperf3's has, by the load's number.
fn iperf3_port(number: u16) -> u16 {
    IPERF3_PORT.saturating_add(number)
}

/// Of a program with its arguments.
fn name(command: &[String]) -> &str {
    command.first().map_or("", String::as_str)
}

/// In words.
pub(super) fn describe(plan: &Plan, load: &Load) -> String {
    let mut on = match load.cpus.as_slice() {
        [] => String::new(),
        cpus => format!(", on CPU {}", Knob::cpu_list(cpus)),
    };
    if let Some(guest) = load.guest().and_then(|guest| plan.guests.get(guest)) {
        on += &format!(" in the guest {}", guest.name);
    }
    match &load.what {
        Work::Udp { rate, size, .. } => format!("UDP, {rate} packets/s, frames of {size} bytes{on}"),
        Work::Iperf3 {
            udp, bitrate, streams, ..
        } => format!(
            "iperf3, {} in {streams} stream{}, {}{on}",
            if *udp { "UDP" } else { "TCP" },
            if *streams == 1 { "" } else { "s" },
            bitrate
                .as_ref()
                .map_or_else(|| "as fast as it goes".to_owned(), |rate| format!("{rate}bit/s each")),
        ),
        Work::Tcp { streams, stream, .. } => {
            let plural = if *streams == 1 { "" } else { "s" };
            let each = match stream {
                tcp::Stream::Bulk { bits_per_s, window } => {
                    let rate = bits_per_s.map(|bits| format!("{}bit/s each", units::short(bits)));
                    let window = window.map(|bytes| format!(", windows of {bytes} bytes"));
                    rate.unwrap_or_else(|| "as fast as it goes".to_owned()) + &window.unwrap_or_default()
                }
                tcp::Stream::Requests { request, answer, per_s } => format!(
                    "requests of {request} bytes and answers of {answer}, {}",
                    per_s.map_or_else(
                        || "one after the other".to_owned(),
                        |rate| format!("{rate}/s each at the most")
                    )
                ),
            };
            format!("TCP in {streams} stream{plural}, {each}{on}")
        }
        // In one line, whatever it is given.
        Work::Program { command, .. } => command.join(" ").replace('\n', " ") + &on,
    }
}

impl On<'_> {
    fn check(&mut self) -> Result<()> {
        if let Some(inside) = &mut self.inside {
            inside.check()?;
        }
        // A server ends with its client, which was started last and has the reason.
        if self.programs.iter_mut().any(|program| program.check().is_err()) {
            for program in self.programs.iter_mut().rev() {
                program.check()?;
            }
        }
        if let Some(tcp) = &mut self.tcp {
            tcp.streams.check()?;
        }
        if let Some(udp) = &mut self.udp {
            udp.check()?;
        }
        Ok(())
    }

    fn end(mut self, seconds: f64) -> Result<LabLoad> {
        #[allow(clippy::cast_precision_loss, reason = "a rate has three digits")]
        let per_s = |count: u64| (seconds > 0.0).then(|| count as f64 / seconds);
        let [mut sent_pps, mut received_pps] = [None; 2];
        if let Some(udp) = self.udp.take() {
            let done = udp.end()?;
            (sent_pps, received_pps) = (per_s(done.sent), done.received.and_then(per_s));
        }
        let [mut sent_bits_per_s, mut received_bits_per_s] = self.bits();
        let mut asked_bits_per_s = self.iperf3.as_ref().and_then(|iperf3| iperf3.asked_bits_per_s);
        let mut requests_per_s = None;
        if let Some(tcp) = self.tcp.take() {
            let done = tcp.streams.end()?;
            sent_bits_per_s = per_s(done.sent_bytes * 8);
            received_bits_per_s = done.received_bytes.and_then(|bytes| per_s(bytes * 8));
            requests_per_s = per_s(done.answers).filter(|_| tcp.has_requests);
            asked_bits_per_s = tcp.asked_bits_per_s;
        }
        Ok(LabLoad {
            name: std::mem::take(&mut self.name),
            description: std::mem::take(&mut self.description),
            sent_pps,
            received_pps,
            asked_bits_per_s,
            sent_bits_per_s,
            received_bits_per_s,
            requests_per_s,
        })
    }

    /// Ends iperf3, and returns the rates that it sent and received, in bit/s.
    fn bits(&mut self) -> [Option<f64>; 2] {
        let Some(Iperf3 { client, server, .. }) = self.iperf3 else {
            return [None; 2];
        };
        let client = self.programs.get_mut(client);
        let Some(client) = client.and_then(|client| {
            client.interrupt();
            client.ended()
        }) else {
            return [None; 2];
        };
        let sent = &client["end"]["sum_sent"];
        // A server ends with its client. Version 3.16 aborts if a signal interrupts its output.
        let server = server.and_then(|server| self.programs.get_mut(server)?.ended());
        // The server's own time begins with its last report.
        let received = server.and_then(|said| {
            let (bytes, seconds) = (
                said["end"]["sum_received"]["bytes"].as_f64()?,
                sent["seconds"].as_f64()?,
            );
            (seconds > 0.0).then(|| bytes * 8.0 / seconds)
        });
        [sent["bits_per_second"].as_f64(), received]
    }
}

impl<'b> Inside<'b> {
    /// On these of the guest's CPUs, or on any of them.
    fn start(guest: &'b Guest, command: &[String], cpus: &[u32], begins: Option<&str>) -> Result<Self> {
        let name = name(command);
        let path = find_program(name).with_context(|| format!("the program {name} is not there"))?;
        let program = match cpus {
            [] => guest.command(path),
            cpus => {
                let words = ["-c", &Knob::cpu_list(cpus), &path.to_string_lossy()].map(str::to_owned);
                guest.command(machine::PINS).args(words)
            }
        };
        let mut inside = Self {
            what: format!("{name} in the guest"),
            child: program.args(command.iter().skip(1).cloned()).spawn()?,
        };
        if let Some(begins) = begins {
            inside.child.wait_for(begins, START_INSIDE)?;
        }
        Ok(inside)
    }

    fn check(&mut self) -> Result<()> {
        let Some(status) = self.child.try_wait()? else {
            return Ok(());
        };
        let printed = self.child.printed().concat();
        Err(ended(&self.what, status, &String::from_utf8_lossy(&printed)))
    }
}

/// Why there is no load any more, with the end of what its program said.
fn ended(what: &str, status: ExitStatus, said: &str) -> Error {
    let mut reports = serde_json::Deserializer::from_str(said).into_iter::<serde_json::Value>();
    let report = reports.next().and_then(Result::ok);
    let last = match report.as_ref().and_then(|report| report["error"].as_str()) {
        // iperf3 says it there when it is to write JSON.
        Some(error) => error.to_owned(),
        None => {
            // The last lines: what came before leads to them.
            let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
            lines[lines.len().saturating_sub(3)..].join("; ")
        }
    };
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, signal) => format!("signal {}", signal.unwrap_or(0)),
    };
    let last = if last.is_empty() { last } else { format!(": {last}") };
    anyhow!("{what} ended in the middle of a turn ({how}){last}")
}

impl Program {
    /// On these CPUs, which a program has from the thread that starts it; on any if there are none.
    fn start(what: &str, mut command: Command, cpus: &[u32]) -> Result<Self> {
        let made = |file: std::io::Result<File>| file.context("a file for its output");
        let (output, errors) = (made(tempfile())?, made(tempfile())?);
        command
            .stdin(Stdio::null())
            .stdout(made(output.try_clone())?)
            .stderr(made(errors.try_clone())?)
            // What is told to all of a terminal is not told to it.
            .process_group(0);
        let before = pin::allowed()?;
        pin::to_cpus(cpus)?;
        // A worker that was just made may not have asked to end with its parent yet, when the lab is killed.
        let child = spawn_with_offspring(&mut command);
        pin::to_cpus(&before)?;
        let name = command.get_program().to_string_lossy().into_owned();
        let child = child.map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => anyhow!("starting {name}: it is not there: {}", how_to_get(&name)),
            _ => anyhow!("starting {name}: {error}"),
        })?;
        Ok(Self {
            what: what.to_owned(),
            child,
            output,
            errors,
        })
    }

    fn check(&mut self) -> Result<()> {
        let Some(status) = self
            .child
            .try_wait()
            .with_context(|| format!("looking after {}", self.what))?
        else {
            return Ok(());
        };
        let said = text(&self.output)? + &text(&self.errors)?;
        Err(ended(&self.what, status, &said))
    }

    /// Sends SIGINT, unless the program has ended.
    fn interrupt(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let (Ok(None), Some(pid)) = (self.child.try_wait(), pid) {
            _ = kill_process(pid, Signal::INT);
        }
    }

    /// Waits for the program to end, and returns the JSON of its standard output. Returns `None` if
    /// the program does not end in time, or if the output is not JSON. Standard error is ignored:
    /// iperf3 3.16 prints messages there.
    fn ended(&mut self) -> Option<serde_json::Value> {
        if !wait_until(END, || !matches!(self.child.try_wait(), Ok(None))) {
            return None;
        }
        serde_json::from_str(&text(&self.output).ok()?).ok()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// The package of a program.
pub(super) fn how_to_get(program: &str) -> String {
    format!("install it (Debian: apt-get install {program})")
}

/// A file without a name, in memory: what a program says is short.
pub(super) fn tempfile() -> std::io::Result<File> {
    use rustix::fs::{MemfdFlags, memfd_create};
    Ok(File::from(memfd_create("ringside-lab", MemfdFlags::CLOEXEC)?))
}

/// Starts a client of `iperf3 -s`. The server closes its port for a moment between two clients, so
/// a client that it refuses is started again for [`START`].
fn start_iperf3_client(
    from: &Arc<Namespace>,
    (at, port): (Ipv4Addr, u16),
    options: &[String],
    cpus: &[u32],
) -> Result<Program> {
    let begun = Instant::now();
    loop {
        let mut client = from.command("iperf3");
        client
            .args(["-c", &at.to_string(), "-p", &port.to_string()])
            .args(options);
        let mut client = Program::start("iperf3", client, cpus)?;
        let mut ended = None;
        let is_decided = wait_until(START_INSIDE, || {
            ended = client.check().err();
            ended.is_some() || is_connected(from, (at, port))
        });
        let Some(error) = ended else {
            ensure!(
                is_decided,
                "iperf3 is not connected to {at} port {port} after {START_INSIDE:?}"
            );
            return Ok(client);
        };
        let is_refused = error.to_string().contains("Connection refused");
        if !is_refused || begun.elapsed() >= START {
            return Err(error);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns whether somebody listens on a TCP port in a namespace.
pub(crate) fn listens(namespace: &Namespace, port: u16) -> bool {
    let end = format!(":{port:04X}");
    has_tcp_socket(namespace, |own, _, state| own.ends_with(&end) && state == "0A")
}

/// Returns whether somebody in a namespace is connected to a TCP port of this address.
fn is_connected(namespace: &Namespace, (at, port): (Ipv4Addr, u16)) -> bool {
    let there = format!("{:08X}:{port:04X}", u32::from_ne_bytes(at.octets()));
    has_tcp_socket(namespace, |_, other, state| other == there && state == "01")
}

/// Returns whether a namespace has a TCP socket by its address, the other end's, and its state, all
/// as `/proc/net/tcp` has them (`net/tcp_states.h`).
fn has_tcp_socket(namespace: &Namespace, is_wanted: impl Fn(&str, &str, &str) -> bool + Sync) -> bool {
    let is_it = |line: &str| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let mut next = || fields.next().unwrap_or_default();
        is_wanted(next(), next(), next())
    };
    let look = || {
        ["tcp", "tcp6"].iter().any(|file| {
            let text = std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default();
            text.lines().any(is_it)
        })
    };
    namespace.try_run(look).unwrap_or(false)
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
