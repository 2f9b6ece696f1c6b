//! The command line, parsed into values: what gets past here makes sense by itself.

mod exit_status;
mod help;
mod peer;
mod values;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use ringside_measure::precision::UntilWidth;
use ringside_measure::probe::DEFAULT_PORT;
use ringside_nic::Interface;
use ringside_wire::MacAddr;
use ringside_xsk::{BusyPoll, Direction, Error, Filter, Mode, QueueOptions, SharedUmem};

pub(crate) use ringside_measure::{BadValue, bad_value};

pub(crate) use self::exit_status::is_about_a_value;
use self::help::{frame_size_help, frames_help, working_set_help};
pub(crate) use self::peer::Peer;
use self::values::interval;
pub(crate) use self::values::{List, bytes_in, count, count_in, list, list_or_none, rate, width};
pub(crate) use self::values::{budget, micros, period, seconds, time_in, time_or};
use crate::live::PrometheusArgs;
use crate::napi::NapiArgs;
use crate::run::impair::ImpairArgs;
use crate::run::listener::ListenerArgs;
use crate::run::ping::LoadArgs;
use crate::run::talker::TalkerArgs;
use crate::run::tx::AskArgs;
use crate::serve::RemoteArgs;
use crate::{caps, compare, config, output, report};
#[cfg(feature = "full")]
use crate::{delay, doctor, lab, manual, search, serve, steer, sweep, top, trace, tune};

/// Measures what a host, a NIC or a path can do, with AF_XDP and with what people use today.
#[derive(Debug, Parser)]
#[command(name = "ringside", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// The command line of this process; ends it where that makes no sense.
    pub(crate) fn read() -> Self {
        let definition = Self::definition();
        let words = match config::expand(&definition, std::env::args_os().collect()) {
            Ok(words) => words,
            Err(error) => {
                output::note(format_args!("ringside: {error:#}"));
                std::process::exit(2);
            }
        };
        Self::from_arg_matches(&definition.get_matches_from(words)).unwrap_or_else(|error| error.exit())
    }

    /// All commands and options, of which help, man pages and completions are made.
    pub(crate) fn definition() -> clap::Command {
        // A test bed has interfaces of its own.
        let optional = |interface: clap::Arg| interface.required(false).default_value("").hide_default_value(true);
        let anywhere = |command: clap::Command| command.mut_arg("interface", optional);
        let two = |interface: clap::Arg| interface.value_name("A,B").help("The two interfaces");
        let impair = |command: clap::Command| command.mut_arg("interface", two);
        // A server is a path, too.
        let served = |command: clap::Command| command.mut_arg("server", |server| server.group("path"));
        let mut whole = Self::command().mut_subcommand("compare", served);
        if cfg!(feature = "full") {
            whole = whole
                .mut_subcommand("search", anywhere)
                .mut_subcommand("serve", anywhere)
                .mut_subcommand("impair", impair);
        }
        config::define(whole)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Receive and drop
    #[cfg(feature = "full")]
    Rx(RxArgs),
    /// Transmit
    #[cfg(feature = "full")]
    Tx(TxArgs),
    /// Forward: back out with MAC addresses swapped, or to a second interface
    #[cfg(feature = "full")]
    Fwd(FwdArgs),
    /// Answer probes of `ringside ping`, and ICMP echo requests to the interface's addresses
    #[cfg(feature = "full")]
    Echo(EchoArgs),
    /// Measure round trips to a `ringside echo`, or to a host where `ringside serve` runs
    #[cfg(feature = "full")]
    Ping(Box<PingArgs>),
    /// Be the far end of measurements that others begin: ping, search, compare
    #[cfg(feature = "full")]
    Serve(Box<serve::Args>),
    /// Be a wire between two interfaces that loses, doubles, damages, delays and reorders packets, and count what was done
    #[cfg(feature = "full")]
    Impair(Box<ImpairArgs>),
    /// Send time-triggered streams: classes of packets with VLAN priorities, each in its window of a cycle
    #[cfg(feature = "full")]
    Talker(Box<TalkerArgs>),
    /// Receive them: latency, inter-packet latency, jitter, loss and window violations of each class
    #[cfg(feature = "full")]
    Listener(Box<ListenerArgs>),
    /// Compare AF_XDP with UDP sockets, AF_PACKET and the kernel's own limit on one path, interleaved
    Compare(Box<compare::Args>),
    /// Measure the time from the XDP program to the application: how it waits, on which CPU, with C-states and without
    #[cfg(feature = "full")]
    Delay(delay::Args),
    /// Trace packets through the kernel: which stage of their way takes how long, and what was in the way of the slowest
    #[cfg(feature = "full")]
    Trace(Box<trace::Args>),
    /// Search for the rates that a path sustains at given losses, and what packets meet at them
    #[cfg(feature = "full")]
    Search(Box<search::Args>),
    /// Find out which settings matter here, and which are best
    #[cfg(feature = "full")]
    Sweep(sweep::Args),
    /// Steer packets to queues and CPUs, and count where they land: rules, IRQs, RPS, XPS, priorities of tags, pinned threads
    #[cfg(feature = "full")]
    Steer(Box<steer::Args>),
    /// Build paths from one file (hosts, links, guests, load), measure each idle and loaded, and report it
    #[cfg(feature = "full")]
    Lab(lab::Args),
    /// Test AF_XDP here, and show problems with the commands that fix them
    #[cfg(feature = "full")]
    Doctor(doctor::Args),
    /// Show what an interface and the kernel can do for XDP and AF_XDP
    Caps(caps::Args),
    /// Make one HTML page, Markdown or CSV of results, side by side if there are several
    Report(report::Args),
    /// Watch running commands and interfaces: rates, rings, drops, interrupts, times
    #[cfg(feature = "full")]
    Top(top::Args),
    /// Show and change what slows an interface's packets down: for the time of a command, or until undone
    #[cfg(feature = "full")]
    Tune(tune::Args),
    /// Ask a `ringside-gateway` that runs, or change what it knows
    #[cfg(feature = "full")]
    #[command(after_help = "\
Examples:
  ringside gateway health
  ringside gateway apply -f tenants.yaml --dry-run
  ringside gateway load neighbors.csv
  ringside gateway list neighbors --vni 42
  ringside gateway watch neighbors --existing --json")]
    Gateway(Box<ringside_gateway::client::ClientArgs>),
    /// Print completions for a shell
    #[cfg(feature = "full")]
    Completions(manual::CompletionArgs),
    /// Print the man page, or write those of all commands
    #[cfg(feature = "full")]
    Man(manual::ManArgs),
    /// Print the JSON Schema of results
    #[cfg(feature = "full")]
    Schema(manual::SchemaArgs),
}

const RX_EXAMPLES: &str = "\
Examples:
  ringside rx eth0                             all queues, until Ctrl-C
  ringside rx eth0 -t 10 --json                ten seconds, result as JSON
  ringside rx eth0 -q 0,2 --cpus 4,5           two queues, a pinned thread each
  ringside rx eth0 --filter udp:4789           only VXLAN; everything else goes up the stack
  ringside rx eth0 --filter dst:192.0.2.0/24,tcp:443,udp:443
  ringside rx eth0 --mode zero-copy            zero-copy, or an error: never a silent step down
  ringside rx eth0 --wait busy-poll --busy-poll-budget 64
  ringside rx eth0 --multi-buffer --frames 4096  jumbo frames, each in several frames of the UMEM
  ringside rx eth0 --unaligned --frame-size 3000
  ringside rx eth0 --hints                     when and where each packet was seen by the XDP program
  ringside rx eth0 --program my.bpf.o --hints  an XDP program of your own, and its hints
  ringside rx eth0 --attached --hints          the XDP program that somebody has attached, and its hints
  ringside rx eth0 --prometheus 9464           metrics at http://127.0.0.1:9464/metrics; and see `ringside top`";

#[derive(Debug, Args)]
// A negative number is a nonsense value, not an unknown option.
#[command(after_help = RX_EXAMPLES, allow_negative_numbers = true)]
pub(crate) struct RxArgs {
    #[command(flatten)]
    pub(crate) port: PortArgs,
    #[command(flatten)]
    pub(crate) run: RunArgs,
    /// Packets to take: all, none, udp:PORT, echo:PORT, ethertype:0xHEX, wire for really all, or terms
    /// with commas: dst:ADDRESS, src:ADDRESS, tcp:PORT, udp:PORT, icmp, and arp for ARP and IPv6
    /// neighbour discovery about the dst addresses; an address may be a prefix, and a port a range.
    /// The others go up the kernel's stack, and so do all other ARP and neighbour discovery
    #[arg(long, default_value = "all")]
    pub(crate) filter: Filter,
    /// Read every byte of every packet, as an application would
    #[arg(long)]
    pub(crate) touch: bool,
    /// Read what the XDP program puts in front of packets, and print it as a table of its fields: receive time, CPU, queue,
    /// number and mark, and what the NIC's driver tells (time stamp, hash, VLAN tag); or with --program whatever structs of
    /// hints are in its BTF
    #[arg(long)]
    pub(crate) hints: bool,
    /// An XDP program of your own, from an object file (clang -g -O2 -target bpf): one that redirects to an XSKMAP
    #[arg(long, value_name = "FILE", conflicts_with = "filter")]
    pub(crate) program: Option<PathBuf>,
    /// The XDP program that is attached to the interface already, by whomever, with its XSKMAP; with --hints its structs of hints
    #[arg(long, conflicts_with_all = ["filter", "program"])]
    pub(crate) attached: bool,
    /// Which XDP program of the file, if it has several
    #[arg(long, value_name = "NAME", requires = "program")]
    pub(crate) program_name: Option<String>,
}

const TX_EXAMPLES: &str = "\
Examples:
  ringside tx eth0 --to 192.0.2.7              UDP to that host, as fast as possible, until Ctrl-C
  ringside tx eth0 --to-mac 02:00:00:00:00:01  to that MAC address
  ringside tx eth0 --to 192.0.2.7 --rate 1000000 -t 10
  ringside tx eth0 --to 192.0.2.7 --size 1514 --count 1000000 --json
  ringside tx eth0 --to 192.0.2.7 --size 9014 --multi-buffer
  ringside tx eth0 --to 192.0.2.7 --cycle 1ms --clock tai --cpus 3 --priority 80
  ringside tx eth0 --to 192.0.2.7 --cycle 1ms --clock tai --launch-time 200us
  ringside tx eth0 --to 192.0.2.7 --cycle 1ms --clock tai --launch-time 200us --via af-packet
  ringside tx eth0 --to 192.0.2.7 --rate 100000 --tx-stamps=16   when one packet in 16 left
  ringside tx eth0 --to 192.0.2.7 --checksum-offload             UDP checksums by the device";

#[derive(Debug, Args)]
#[command(after_help = TX_EXAMPLES, allow_negative_numbers = true)]
pub(crate) struct TxArgs {
    #[command(flatten)]
    pub(crate) port: PortArgs,
    #[command(flatten)]
    pub(crate) run: RunArgs,
    #[command(flatten)]
    pub(crate) flow: FlowArgs,
    /// Bytes of a packet from the Ethernet header on, without the frame check sequence (FCS): 60 to what the MTU allows, 1514
    /// mostly, and a frame of the UMEM holds, or with --multi-buffer several; such as 64 or 1.5k
    #[arg(long, default_value_t = 64, value_name = "BYTES",
          value_parser = bytes_in(0_u32..=u32::MAX))]
    pub(crate) size: u32,
    /// Packets per second over all queues, such as 1000, 10k or 2M, paced by intended time
    /// [default: as fast as possible]
    #[arg(long, value_name = "PPS", value_parser = rate)]
    pub(crate) rate: Option<u64>,
    /// A packet at each deadline, so far apart, such as 1ms or 250us, on one queue; whether deadlines were kept is in the result
    #[arg(long, value_name = "TIME", value_parser = period, conflicts_with = "rate")]
    pub(crate) cycle: Option<Duration>,
    /// Clock of the deadlines, which are its multiples of the cycle's time: with tai the same on all hosts that agree on it
    #[arg(long, value_enum, default_value_t = CycleClock::Monotonic, requires = "cycle")]
    pub(crate) clock: CycleClock,
    /// Wait for deadlines spinning, a core at 100 % [default: asleep, woken as early as waking up has taken lately]
    #[arg(long, requires = "cycle")]
    pub(crate) spin: bool,
    /// Sleep until the deadline itself, and be late by what waking up takes
    #[arg(long, requires = "cycle", conflicts_with = "spin")]
    pub(crate) sleep: bool,
    /// What a cyclic sender sends through
    #[arg(long, value_enum, default_value_t = ViaArg::AfXdp, requires = "cycle")]
    pub(crate) via: ViaArg,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

/// `--via`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ViaArg {
    /// An XDP socket
    AfXdp,
    /// A packet socket, with SO_TXTIME, for comparison
    AfPacket,
}

/// `--clock`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CycleClock {
    /// CLOCK_MONOTONIC, which nobody can set
    Monotonic,
    /// CLOCK_TAI, which hosts can agree on (ptp4l and phc2sys, chrony)
    Tai,
}

const FWD_EXAMPLES: &str = "\
Examples:
  ringside fwd eth0                            send everything back with MAC addresses swapped
  ringside fwd eth0 --out eth1                 send on to a second interface, unchanged and without a copy
  ringside fwd eth0 --out eth1 --copy-between  the same with a copy, to compare
  ringside fwd eth0 --out eth1 --multi-buffer --frames 4096
  ringside fwd eth0 --filter udp:9 --batch 256";

#[derive(Debug, Args)]
#[command(after_help = FWD_EXAMPLES, allow_negative_numbers = true)]
pub(crate) struct FwdArgs {
    #[command(flatten)]
    pub(crate) port: PortArgs,
    #[command(flatten)]
    pub(crate) run: RunArgs,
    /// Second interface to send to, unchanged: from the frames that packets were received in, where both interfaces can
    /// use one UMEM, otherwise from copies
    #[arg(long, visible_alias = "to", value_name = "INTERFACE")]
    pub(crate) out: Option<String>,
    /// Copy packets between two UMEMs also where one would do, to compare
    #[arg(long, requires = "out")]
    pub(crate) copy_between: bool,
    /// Packets to take, as for `rx`
    #[arg(long, default_value = "all")]
    pub(crate) filter: Filter,
}

const ECHO_EXAMPLES: &str = "\
Examples:
  ringside echo eth0                           answer on the default port, until Ctrl-C
  ringside echo eth0 --port 7000 --wait poll   without a spinning core
  ringside echo eth0 --prometheus 192.0.2.1:9464
  ringside echo eth0 --multi-buffer            also probes in jumbo frames";

#[derive(Debug, Args)]
#[command(after_help = ECHO_EXAMPLES, allow_negative_numbers = true)]
pub(crate) struct EchoArgs {
    #[command(flatten)]
    pub(crate) port: PortArgs,
    #[command(flatten)]
    pub(crate) run: RunArgs,
    /// UDP port of the probes; only it and ICMP echo requests are taken from the interface
    #[arg(long = "port", default_value_t = DEFAULT_PORT, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) udp_port: u16,
}

const PING_EXAMPLES: &str = "\
Examples:
  ringside ping eth0 --to 192.0.2.7            one probe in flight, as fast as it comes back
  ringside ping eth0 --to 192.0.2.7 --rate 10000 -t 10
  ringside ping eth0 --to 192.0.2.7 --until-ci 1% -t 60   until the median is known to 1 %, but no longer than a minute
  ringside ping eth0 --to 2001:db8::7 --depth 16 --size 1000 --count 100000
  ringside ping eth0 --to 192.0.2.7 --size 9014 --multi-buffer
  ringside ping eth0 --to 192.0.2.7 --under-load   idle, self-induced and foreign load, side by side
  ringside ping eth0 --to 192.0.2.7 --under-load=foreign --load-command 'iperf3 -c 192.0.2.7 -t 60'
  ringside ping eth0 --to 02:00:00:00:00:01    by MAC address, where there is no IP
  ringside ping 192.0.2.7 --token-file ringside.token   a host where `ringside serve` runs: both ends in one result
  ringside ping 192.0.2.7 --token-file ringside.token --one-way   there and back by both clocks, if they are synchronised";

#[derive(Debug, Args)]
#[command(after_help = PING_EXAMPLES, allow_negative_numbers = true)]
pub(crate) struct PingArgs {
    #[command(flatten)]
    pub(crate) port: PortArgs,
    #[command(flatten)]
    pub(crate) run: RunArgs,
    #[command(flatten)]
    pub(crate) flow: FlowArgs,
    /// Bytes of a packet from the Ethernet header on, without FCS, such as 512 or 1.5k
    /// [default: the smallest that holds a probe, 82 for IPv4]
    #[arg(long, value_name = "BYTES", value_parser = bytes_in(0_u32..=u32::MAX))]
    pub(crate) size: Option<u32>,
    /// Probes per second, such as 1000 or 10k, scheduled by intended time [default: the next one
    /// when the answer is there]
    #[arg(long, value_name = "PPS", value_parser = rate)]
    pub(crate) rate: Option<u64>,
    /// Highest number of probes in flight, such as 16 or 1k [default: 1; with --rate 65536, so that
    /// the schedule does not wait for answers]
    #[arg(long, value_name = "N", value_parser = count_in(1_u32..=65536))]
    pub(crate) depth: Option<u32>,
    /// Seconds, or a time such as 200ms, to wait for an answer before the next probe takes its
    /// place; one that comes later, but during the run, still counts
    #[arg(long, default_value = "1", value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
    /// Also the times there and back, by the clocks of both hosts: where these are one, or synchronised
    #[arg(long, conflicts_with = "under_load")]
    pub(crate) one_way: bool,
}

impl PingArgs {
    /// Probes per second; `None` where the next one waits for an answer.
    pub(crate) fn probe_rate(&self) -> Option<u64> {
        self.rate.or(if self.depth.is_none() {
            self.load.probe_rate()
        } else {
            None
        })
    }
}

/// Where packets go and what they say they are.
#[derive(Clone, Debug, Args)]
pub(crate) struct FlowArgs {
    /// Receiver: an IP address, resolved to a MAC address by ARP or neighbour discovery, or a MAC address
    #[arg(long, value_name = "IP|MAC")]
    pub(crate) to: Option<Peer>,
    /// Receiver's MAC address, instead of asking for it
    #[arg(long, value_name = "MAC")]
    pub(crate) to_mac: Option<MacAddr>,
    /// Receiver's UDP port
    #[arg(long, default_value_t = DEFAULT_PORT, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) to_port: u16,
    /// Sender's IP address [default: the interface's own]
    #[arg(long, value_name = "IP")]
    pub(crate) from: Option<IpAddr>,
    /// Sender's MAC address [default: the interface's own]
    #[arg(long, value_name = "MAC")]
    pub(crate) from_mac: Option<MacAddr>,
    /// Sender's UDP port; answers to it are taken from the interface
    #[arg(long, default_value_t = DEFAULT_PORT + 1, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) from_port: u16,
}

/// Interface, queues, sizes, waiting: what all commands on one port share.
#[derive(Clone, Debug, Args)]
pub(crate) struct PortArgs {
    /// Network interface
    pub(crate) interface: String,
    /// Queues, such as 0,2-3 [default: all]
    #[arg(short, long, value_name = "LIST", value_parser = list)]
    pub(crate) queues: Option<List>,
    /// auto, or one that must be had: zero-copy, native, generic
    #[arg(short, long, default_value = "auto")]
    pub(crate) mode: Mode,
    /// What a thread does when there are no packets
    #[arg(short, long, value_enum, default_value_t = WaitArg::Spin)]
    pub(crate) wait: WaitArg,
    /// CPUs to pin the threads to, one for each queue in turn, such as 2,3 or 4-7
    #[arg(short, long, value_name = "LIST", value_parser = list)]
    pub(crate) cpus: Option<List>,
    /// SCHED_FIFO priority of the threads, 1 to 99 [default: the normal scheduler]
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(i32).range(1..=99))]
    pub(crate) priority: Option<i32>,
    /// Highest number of packets in a burst, such as 256 or 1k
    #[arg(short, long, default_value_t = 64, value_parser = count_in(0_u32..=u32::MAX))]
    pub(crate) batch: u32,
    #[arg(long, value_name = "BYTES", help = frame_size_help(),
          value_parser = bytes_in(0_u32..=u32::MAX))]
    pub(crate) frame_size: Option<u32>,
    /// Frames of any size, also across the borders of pages; a zero-copy driver wants --huge-pages with it
    #[arg(long)]
    pub(crate) unaligned: bool,
    /// Packets may be in several frames, so that jumbo frames are received, forwarded and sent (Linux 6.6)
    #[arg(long)]
    pub(crate) multi_buffer: bool,
    #[arg(long, value_name = "N", help = frames_help(), value_parser = count_in(0_u32..=u32::MAX))]
    pub(crate) frames: Option<u32>,
    #[arg(long, value_name = "PACKETS", help = working_set_help(),
          value_parser = count_in(1_u32..=u32::MAX))]
    pub(crate) working_set: Option<u32>,
    /// Slots of RX and TX ring, such as 2048 or 10k [default: to fit the frames]
    #[arg(long, value_name = "N", value_parser = count_in(0_u32..=u32::MAX))]
    pub(crate) ring: Option<u32>,
    /// Bytes to leave free in front of packets, beyond the kernel's 256, such as 64 or 1k
    #[arg(long, default_value_t = 0, value_name = "BYTES",
          value_parser = bytes_in(0_u32..=u32::MAX))]
    pub(crate) headroom: u32,
    /// Put frames into 2 MiB pages where there are some
    #[arg(long)]
    pub(crate) huge_pages: bool,
    /// Packets per busy-poll, for `--wait busy-poll`, such as 64 or 1k
    #[arg(long, default_value_t = 64, value_name = "PACKETS",
          value_parser = count_in(1_u32..=65535))]
    pub(crate) busy_poll_budget: u32,
    /// Wake the kernel at every burst instead of when it asks
    #[arg(long)]
    pub(crate) no_need_wakeup: bool,
    /// Packets that one sendto() sends on copy paths, such as 256 or 1k, from 32 to the TX ring's
    /// size (Linux 6.17) [default: the TX ring's size]
    #[arg(long, value_name = "PACKETS", value_parser = count_in(0_u32..=u32::MAX))]
    pub(crate) tx_budget: Option<u32>,
    #[command(flatten)]
    pub(crate) napi: NapiArgs,
}

impl PortArgs {
    /// Refuses a frame size that only unaligned chunks can have: what they cost is to be asked for.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        if let Some(size) = self.frame_size
            && (2048..=4096).contains(&size)
            && !size.is_power_of_two()
            && !self.unaligned
        {
            bad_value!(
                "--frame-size {size}: no power of two, so that frames lie across the borders of pages: add --unaligned, or \
                 take 2048 or 4096"
            );
        }
        Ok(())
    }

    /// The options for a queue of this direction.
    pub(crate) fn options(&self, direction: Direction) -> QueueOptions {
        let mut options = QueueOptions::new()
            .direction(direction)
            .batch(self.batch)
            .unaligned_chunks(self.unaligned)
            .multi_buffer(self.multi_buffer)
            .headroom(self.headroom)
            .huge_pages(self.huge_pages)
            .need_wakeup(!self.no_need_wakeup);
        if let Some(bytes) = self.frame_size {
            options = options.frame_size(bytes);
        }
        if let Some(frames) = self.frames {
            options = options.frames(frames);
        }
        if let Some(packets) = self.working_set {
            options = options.working_set(packets);
        }
        if let Some(slots) = self.ring {
            options = options.rx_ring(slots).tx_ring(slots);
        }
        if let Some(budget) = self.tx_budget {
            options = options.tx_budget(budget);
        }
        if self.wait == WaitArg::BusyPoll {
            options = options.busy_poll(BusyPoll::with_budget(self.busy_poll_budget));
        }
        options
    }

    /// A UMEM of so many frames for several ports, in which the packets of these interfaces are received; cut as
    /// [`options`](Self::options) has it.
    pub(crate) fn shared_umem(&self, frames: u32, from: &[Interface]) -> Result<SharedUmem, Error> {
        let options = self.options(Direction::Both);
        let sizes = from.iter().map(|interface| options.frame_size_on(interface, self.mode));
        SharedUmem::builder()
            .frames(frames)
            .frame_size(sizes.max().unwrap_or(QueueOptions::DEFAULT_FRAME_SIZE))
            .unaligned_chunks(self.unaligned)
            .multi_buffer(self.multi_buffer)
            .headroom(self.headroom)
            .huge_pages(self.huge_pages)
            .build()
    }
}

/// When a run ends and how it tells.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunArgs {
    /// Seconds to run, or a time with its unit, such as 500ms, 10s or 2min [default: until Ctrl-C]
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) time: Option<Duration>,
    /// Packets after which to end, such as 1000, 10k or 2M
    #[arg(long, value_name = "PACKETS", value_parser = count)]
    pub(crate) count: Option<u64>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Print all figures: of each direction, queue and CPU, all percentiles, how the counts add up,
    /// and why a mode is not a better one
    #[arg(short, long)]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) prometheus: PrometheusArgs,
    /// Seconds, or a time such as 200ms, between interval statistics, which are printed when this
    /// is given and are always in the JSON
    #[arg(short, long, value_name = "SECONDS", value_parser = interval)]
    pub(crate) interval: Option<Duration>,
    /// Run until the 95 % interval of the median round trip, or of the rate, is narrower than this part of it, such as 1%, or the time
    /// is over; by pieces of 0.25 seconds unless --interval says otherwise, ten at least
    #[arg(long, value_name = "PERCENT", value_parser = width)]
    pub(crate) until_ci: Option<UntilWidth>,
}

impl RunArgs {
    /// Time between two interval statistics.
    pub(crate) fn piece(&self) -> Duration {
        let usual = if self.until_ci.is_some() { 250 } else { 1000 };
        self.interval.unwrap_or(Duration::from_millis(usual))
    }
}

/// Where the result goes.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct OutputArgs {
    /// Print the result as JSON (schema ringside.result/1) to standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the result as JSON to a file, in addition
    #[arg(long, value_name = "FILE")]
    pub(crate) json_file: Option<PathBuf>,
    /// Exit with an error if the result is invalid: CPU time was stolen, a clock went wrong, the machine was suspended. It is told
    /// in any case
    #[arg(long)]
    pub(crate) require_valid: bool,
}

/// `--wait`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WaitArg {
    /// Look again at once: lowest latency, a core at 100 %
    Spin,
    /// Sleep in poll() until a packet comes
    Poll,
    /// Run the driver's NAPI poll on this thread
    BusyPoll,
}

#[cfg(test)]
#[path = "args/units_tests.rs"]
mod tests;
