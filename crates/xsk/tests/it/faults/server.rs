//! A process that opens two queues, receives, and sends everything back until its standard input ends.

use std::io::{BufRead, BufReader, Read};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ringside_xsk::{Deferral, Error, Interface, Mode, Path, Port, Queue, QueueOptions, Stats, Wait};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::common::PATIENCE;
use super::common::child::{Guard, say_outcome};

pub(crate) const PATH: &str = "RINGSIDE_TEST_PATH";
const FRAMES: &str = "RINGSIDE_TEST_FRAMES";
const DEFERRAL: &str = "RINGSIDE_TEST_DEFERRAL";

/// What the process does.
pub(crate) fn serve(interface: Interface) {
    let options = match std::env::var(FRAMES) {
        Ok(frames) => QueueOptions::new().frames(frames.parse().unwrap()),
        Err(_) => QueueOptions::new(),
    };
    let mut port = Port::builder(interface).mode(Mode::Require(path())).queues([0, 1]);
    if std::env::var_os(DEFERRAL).is_some() {
        port = port.deferral(Deferral {
            defer_hard_irqs: 2,
            gro_flush_timeout: Duration::from_micros(100),
            ..Deferral::default()
        });
    }
    match port.options(options.busy_timeout(PATIENCE)).open() {
        Ok(mut port) => {
            let queues: Vec<String> = port.report().queues.iter().map(ToString::to_string).collect();
            println!("says: ready {:?} {queues:?}", port.report().settings);
            answer(&mut port);
            println!("says: {}", serde_json::to_string(&port.stats().unwrap()).unwrap());
        }
        Err(error) => say_outcome(Err(error)),
    }
}

/// The path that the environment names.
pub(crate) fn path() -> Path {
    match std::env::var(PATH).unwrap().as_str() {
        "generic" => Path::Generic,
        _ => Path::NativeCopy,
    }
}

fn answer(port: &mut Port) {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for queue in port.queues_mut() {
            let ended = &ended;
            scope.spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    send_back(queue, Wait::Poll(Duration::from_millis(20))).unwrap();
                }
                // What has come by then.
                while send_back(queue, Wait::Spin).unwrap() > 0 {}
                assert!(queue.drain(PATIENCE).unwrap());
            });
        }
        _ = std::io::stdin().read_to_end(&mut Vec::new());
        ended.store(true, Ordering::Relaxed);
    });
}

fn send_back(queue: &mut Queue, wait: Wait) -> Result<u32, Error> {
    let mut burst = queue.recv(wait)?;
    for mut packet in &mut burst {
        packet.data_mut()[..12].rotate_left(6);
    }
    burst.send_back()
}

/// Such a process, as seen by the test.
pub(crate) struct Server {
    process: Guard,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Server {
    /// Starts it, in this mode.
    pub(crate) fn start(mut command: Command, path: Path) -> Self {
        command.env(PATH, path.name()).stdin(Stdio::piped());
        let mut process = Guard(command.spawn().unwrap());
        let lines = BufReader::new(process.0.stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    pub(crate) fn with_frames(mut command: Command, frames: u32) -> Command {
        command.env(FRAMES, frames.to_string());
        command
    }

    pub(crate) fn with_deferral(mut command: Command) -> Command {
        command.env(DEFERRAL, "yes");
        command
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.0.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process.0), signal).unwrap();
    }

    /// Its standard input comes to an end.
    pub(crate) fn ask_to_end(&mut self) {
        drop(self.process.0.stdin.take());
    }

    /// The next thing that it says.
    pub(crate) fn says(&mut self) -> String {
        let said = self.lines.by_ref().map_while(Result::ok);
        let mut said = said.filter_map(|line| Some(line.split_once("says: ")?.1.to_owned()));
        said.next().expect("it says something")
    }

    /// Waits until it serves.
    pub(crate) fn ready(&mut self) -> String {
        let said = self.says();
        assert!(said.starts_with("ready"), "{said}");
        said
    }

    pub(crate) fn kill(mut self) {
        self.process.0.kill().unwrap();
        self.process.0.wait().unwrap();
    }

    /// Lets it finish; what it counted.
    pub(crate) fn end(mut self) -> Stats {
        self.ask_to_end();
        let stats = counted(&self.says());
        assert!(self.process.0.wait().unwrap().success());
        stats
    }
}

/// The counters that matter here, of what a process said.
pub(crate) fn counted(said: &str) -> Stats {
    let said: Value = serde_json::from_str(said).unwrap_or_else(|error| panic!("{error}: {said}"));
    let count = |group: &str, name: &str| said[group][name].as_u64().unwrap();
    let mut stats = Stats::default();
    stats.kernel.rx_dropped = count("kernel", "rx_dropped");
    stats.kernel.rx_ring_full = count("kernel", "rx_ring_full");
    stats.kernel.rx_fill_ring_empty = count("kernel", "rx_fill_ring_empty");
    stats.own.rx_packets = count("own", "rx_packets");
    stats.own.tx_packets = count("own", "tx_packets");
    stats.own.tx_completed = count("own", "tx_completed");
    stats
}
