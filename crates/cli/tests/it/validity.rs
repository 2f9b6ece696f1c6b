//! A result says whether it can be believed: what the machine did meanwhile is read from the kernel's own files, over which a test
//! lays its own, in a mount namespace of the run alone.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::common;
use crate::common::{Running, lab, unwrapped};
use ringside_measure::schema::Outcome;
use ringside_measure::validity::{Reason, Validity};
use ringside_netlab::Lab;
use ringside_netlab::testing::is_root;

const CLOCKSOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
const STAT: &str = "/proc/stat";

/// A file that a run sees in the place of one of the kernel's.
struct Laid {
    own: PathBuf,
    over: &'static str,
}

impl Laid {
    fn over(over: &'static str, text: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Relaxed);
        let name = format!("{}-{number}-{}", std::process::id(), over.replace('/', "-"));
        let own = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::write(&own, text).expect("written");
        Self { own, over }
    }

    /// The binary at one end of a test bed, which sees this file.
    fn start(&self, lab: &Lab, arguments: &str) -> Running {
        let mut command = lab.a.ns.command("unshare");
        let script = self.script(&arguments.replace("{}", lab.a.interface.name()));
        command
            .args(["--mount", "sh", "-c", &script])
            .env_remove("SSH_CONNECTION");
        let running = Running::new(command);
        // It has begun, and looked at the file for the first time.
        running.wait_for("->");
        running
    }

    /// Runs the binary, which sees this file, on test beds of its own.
    fn run(&self, arguments: &str) -> Running {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &self.script(arguments)]);
        Running::new(command)
    }

    fn script(&self, arguments: &str) -> String {
        format!(
            "mount --bind {} {} && exec {} {arguments}",
            self.own.display(),
            self.over,
            env!("CARGO_BIN_EXE_ringside")
        )
    }

    fn becomes(&self, text: &str) {
        fs::write(&self.own, text).expect("written");
    }
}

impl Drop for Laid {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.own);
    }
}

const SEND: &str = "tx {} --to-mac 02:00:00:00:00:01 --rate 1000 -t 3";

fn reasons(validity: &Validity) -> Vec<Reason> {
    assert_eq!(validity.valid, validity.reasons.is_empty(), "{validity:?}");
    validity.reasons.iter().map(|invalid| invalid.reason).collect()
}

#[test]
fn a_changed_clock_source_makes_a_result_invalid() {
    if !is_root() {
        return;
    }
    let lab = lab("valid-clock", 1);
    let laid = Laid::over(CLOCKSOURCE, "tsc\n");
    let run = |more: &str| {
        laid.becomes("tsc\n");
        let running = laid.start(&lab, &format!("{SEND}{more}"));
        laid.becomes("hpet\n");
        running.end()
    };
    // Told, and no failure.
    let done = run("").good();
    let words = "the kernel changed its clock source from tsc to hpet";
    let text = unwrapped(&done.out);
    assert!(text.contains("INVALID: ") && text.contains(words), "{text}");
    assert!(
        done.out.ends_with("\nDetails: -v; all figures: --json\n"),
        "{}",
        done.out
    );
    // A failure where it is asked for, with the whole result all the same.
    let done = run(" --json --require-valid");
    let message = done.bad();
    assert!(
        message.contains("--require-valid: the result is invalid: ") && message.contains(words),
        "{message}"
    );
    let validity = done.document().validity.expect("judged");
    assert!(reasons(&validity).contains(&Reason::ClocksourceChanged), "{validity:?}");
    assert!(done.result().transmitted.is_some());
}

#[test]
fn stolen_time_makes_a_result_invalid() {
    if !is_root() {
        return;
    }
    let lab = lab("valid-steal", 1);
    let times =
        |idle: u32, steal: u32| format!("cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 100 0 100 {idle} 0 0 0 {steal} 0 0\nctxt 1\n");
    let laid = Laid::over(STAT, &times(1_000, 10));
    let running = laid.start(&lab, &format!("{SEND} --json"));
    // A fifth of the time.
    laid.becomes(&times(1_080, 30));
    let done = running.end().good();
    let validity = done.document().validity.expect("judged");
    assert!(reasons(&validity).contains(&Reason::Steal), "{validity:?}");
    assert_eq!(validity.steal_percent, Some(20.0));
    assert!(
        done.err.contains("the hypervisor took 20.0 % of the time of CPU 0"),
        "{}",
        done.err
    );
}

#[test]
fn every_result_is_judged() {
    if !is_root() {
        return;
    }
    let lab = lab("valid-quiet", 1);
    let done = common::run(&lab.a, &format!("{SEND} --json")).good();
    let validity = done.document().validity.expect("judged");
    // The machine may really have been taken away; nobody has changed its clocks.
    assert!(
        (reasons(&validity).iter())
            .all(|reason| [Reason::Steal, Reason::CpuContention, Reason::SenderLate].contains(reason)),
        "{validity:?}"
    );
    assert_eq!((validity.suspended_ns, validity.clock_set_ns), (0, 0));
}

/// Times of two CPUs, a fifth of which is stolen, for as long as this lives.
struct Stolen {
    laid: Laid,
    over: Arc<AtomicBool>,
    writer: Option<JoinHandle<()>>,
}

impl Stolen {
    fn begin() -> Self {
        let text = |ticks: u64| {
            let (idle, steal) = (1_000 + ticks * 4, 10 + ticks);
            let of = |cpu| format!("cpu{cpu} 100 0 100 {idle:09} 0 0 0 {steal:09} 0 0\n");
            format!("cpu  0 0 0 0 0 0 0 0 0 0\n{}{}ctxt 1\n", of(0), of(1))
        };
        let laid = Laid::over(STAT, &text(0));
        let over = Arc::new(AtomicBool::new(false));
        let (is_over, own) = (Arc::clone(&over), laid.own.clone());
        let writer = thread::spawn(move || {
            let file = fs::File::options().write(true).open(own).expect("opened");
            for ticks in 1.. {
                thread::sleep(Duration::from_millis(10));
                // In one piece, for there is always a reader.
                file.write_all_at(text(ticks).as_bytes(), 0).expect("written");
                if is_over.load(Relaxed) {
                    break;
                }
            }
        });
        Self {
            laid,
            over,
            writer: Some(writer),
        }
    }
}

impl Drop for Stolen {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        _ = self.writer.take().map(JoinHandle::join);
    }
}

/// Rounds that are all disturbed count, and the result is invalid.
#[test]
fn a_machine_with_steady_steal_has_results() {
    if !is_root() {
        return;
    }
    let stolen = Stolen::begin();
    let into = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("stolen-{}", std::process::id()));
    for line in [
        "delay --lab veth --waits poll --samples 60 --rounds 1 --interval 400us --json",
        "compare --lab veth --variants udp-blocking,af-packet --operations tx --rounds 2 --slot-ms 50 --json",
        "sweep --lab veth --for tx-rate --rounds 1 --confirm 1 --slot-ms 50 --knob batch=8,64 --json",
        &format!("lab run smoke --rounds 1 --json --into {}", into.display()),
    ] {
        let done = stolen.laid.run(line).end().good();
        let document = done.document();
        let validity = document.validity.expect("judged");
        assert!(
            reasons(&validity).contains(&Reason::RoundsDisturbed),
            "{line}: {validity:?}"
        );
        let figures = match &document.result {
            Outcome::Delay(delay) => delay.cells.iter().filter(|cell| cell.delay.is_some()).count(),
            Outcome::Compare(compare) => {
                let variants = compare.tables.iter().flat_map(|table| &table.variants);
                variants.filter(|variant| variant.packets_pps.is_some()).count()
            }
            Outcome::Sweep(sweep) => sweep.configurations.iter().filter(|one| one.figure.is_some()).count(),
            Outcome::Lab(lab) => lab.cells.iter().filter(|cell| cell.unavailable.is_none()).count(),
            other => panic!("{line}: {other:?}"),
        };
        assert!(figures > 0, "{line}");
    }
    fs::remove_dir_all(into).expect("a folder of the lab's");
}
