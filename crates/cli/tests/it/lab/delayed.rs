//! Delays inside a guest: a program that its answering one waits for, and an answering one that stands still, each found in its stage and in no other. One boot.

use ringside_measure::latency::Latency;
use ringside_measure::schema::{LabResult, LabStages, LoadKind, StageResult, TracedPath};
use ringside_measure::trace::{Point, Stage};
use ringside_netlab::testing::{Off, expect, is_root, measured};

use super::guests::PATIENCE;
use super::{Scratch, alone, run_whole};

/// Takes its CPU from everybody who has no real-time priority, most of the time.
const HOG: &str = r#"$t = "\0" x 16; $priority = pack("i", 10); sub now { syscall(228, 1, $t); my @t = unpack("qq", $t); $t[0] + $t[1] / 1e9 }
syscall(144, 0, 1, $priority) == 0 or die "SCHED_FIFO: $!";
for (;;) { $end = now() + 0.02; 1 while now() < $end; select(undef, undef, undef, 0.004) }"#;

/// Stops the guest's server for most of the time, and lets it go on when it is killed itself.
const STOPS: &str = r#"opendir(D, "/proc"); for $n (grep { /^\d+$/ } readdir(D)) { open(F, "/proc/$n/cmdline") or next; $_ = <F>; $p = $n if /\0serve\0/ }
die "nobody serves" unless $p; $own = $$;
if (!fork) { setpgrp; select(undef, undef, undef, 0.005) while getppid == $own; kill CONT => $p; exit }
while (kill 0 => $p) { kill STOP => $p; select(undef, undef, undef, 0.07); kill CONT => $p; select(undef, undef, undef, 0.008) }"#;

const MS: f64 = 1e6;

/// One path: without anything beside it, beside a program on the guest's CPU that answers, 0, beside some on the other CPU, and with the one that answers standing still.
fn content() -> String {
    let mut content = "rounds = 1\nturn = \"4s\"\ntrace = true\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n\
                       [[link]]\nname = \"up\"\nends = [\"a\", \"b\"]\n\
                       [[guest]]\nname = \"vm\"\nhost = \"b\"\nattachment = \"tap-bridge\"\nuplink = \"up\"\n"
        .to_owned();
    content += "[[load]]\nname = \"aside\"\nkind = \"stress-ng\"\nguest = \"vm\"\nworkers = 16\ncpus = [1]\n";
    for (name, script, cpus) in [("hog", HOG, "cpus = [0]\n"), ("still", STOPS, "")] {
        content += &format!(
            "[[load]]\nname = {name:?}\nkind = \"program\"\nguest = \"vm\"\ncommand = [\"perl\", \"-e\", '''{script}''']\n{cpus}"
        );
    }
    for (name, keys) in [("hog", ""), ("aside", "idle = false\n"), ("still", "idle = false\n")] {
        content += &format!(
            "[[probe]]\nname = {name:?}\nfrom = \"a\"\nto = \"vm\"\nwith = \"udp\"\nrate = 25\nmeasure = [\"rtt\"]\nloads = [{name:?}]\n{keys}"
        );
    }
    content
}

#[test]
#[ignore = "make test-guests runs it"]
fn a_hog_and_a_receiver_that_stands_still_are_found_inside_a_guest() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    scratch.lab(&content());
    measured(|| assert_delays(&run_whole(&scratch, PATIENCE).1));
}

fn assert_delays(result: &LabResult) -> Result<(), Off> {
    let free = traced(result, "hog", LoadKind::Idle);
    let [hog, aside, still] = ["hog", "aside", "still"].map(|name| traced(result, name, LoadKind::Foreign));
    let wake_up = Stage::From(Point::Waking);
    assert_delay_in(free, hog, wake_up, MS)?;
    assert_delay_in(free, still, Stage::From(Point::Ready), 10.0 * MS)?;
    // What nobody has to wait for is not found there.
    let [found, elsewhere] = [hog, aside].map(|path| growth(free, path, hop_inside(path), wake_up));
    eprintln!("wake-up in the guest: {found} ns beside it, {elsewhere} ns beside the other CPU");
    expect(
        elsewhere < found / 3.0,
        format_args!("{elsewhere} ns elsewhere: {free:#?}\n{aside:#?}"),
    )
}

fn traced<'r>(result: &'r LabResult, path: &str, condition: LoadKind) -> &'r TracedPath {
    let is_it = |stages: &&LabStages| (stages.path.as_str(), stages.condition) == (path, condition);
    let stages = result
        .stages
        .iter()
        .find(is_it)
        .unwrap_or_else(|| panic!("{result:#?}"));
    assert_eq!(stages.unavailable, None, "{stages:#?}");
    let loads: Vec<&str> = stages.loads.iter().map(|load| load.description.as_str()).collect();
    assert_eq!(loads.len(), usize::from(condition == LoadKind::Foreign), "{loads:?}");
    assert!(loads.iter().all(|load| load.ends_with(" in the guest vm")), "{loads:?}");
    let path = stages.traced.as_ref().unwrap_or_else(|| panic!("{stages:#?}"));
    assert!(path.traced_packets >= 10, "{path:#?}");
    let whole = path.whole.expect("packets").mean_ns;
    assert!((path.sum_mean_ns - whole).abs() < 1_000.0, "they add up: {path:#?}");
    path
}

/// The hop in which packets come to the guest's answering program.
fn hop_inside(path: &TracedPath) -> u32 {
    let is_inside = |stage: &&StageResult| {
        let at = stage.interface.as_deref();
        at.is_some_and(|name| name.ends_with(" in the guest"))
    };
    let first = path.stages.iter().find(is_inside);
    first.unwrap_or_else(|| panic!("{path:#?}")).hop
}

fn stage_of(path: &TracedPath, hop: u32, stage: Stage) -> Option<&StageResult> {
    path.stages.iter().find(|of| (of.hop, of.stage) == (hop, stage))
}

/// The median of all packets, in nanoseconds; one that does without it needs nothing.
fn usual(path: &TracedPath, hop: u32, stage: Stage) -> f64 {
    let Some(text) = stage_of(path, hop, stage).and_then(|of| of.times_hdr.as_deref()) else {
        return 0.0;
    };
    let times = Latency::from_hdr(text).expect("readable");
    let half = path.traced_packets / 2;
    let mut so_far = path.traced_packets.saturating_sub(times.samples());
    if so_far > half {
        return 0.0;
    }
    let mut buckets = times.buckets();
    let middle = buckets.find(|bucket| {
        so_far += bucket.samples;
        so_far > half
    });
    middle.expect("all packets").to_ns as f64
}

fn growth(free: &TracedPath, delayed: &TracedPath, hop: u32, stage: Stage) -> f64 {
    usual(delayed, hop, stage) - usual(free, hop, stage)
}

/// A stage of the guest takes so much longer for most packets, has most of what the whole way takes longer, and no other stage, there or here, grows by a
/// third of that.
fn assert_delay_in(free: &TracedPath, delayed: &TracedPath, stage: Stage, least_ns: f64) -> Result<(), Off> {
    let hop = hop_inside(delayed);
    let part = |path| stage_of(path, hop, stage).map_or(0.0, |of| of.part_ns);
    let whole = |path: &TracedPath| path.whole.expect("packets").mean_ns;
    for of in &delayed.stages {
        let [was, is] = [free, delayed].map(|path| usual(path, of.hop, of.stage) / MS);
        eprintln!("{}: {:<28} {was:>8.3} ms, then {is:>8.3} ms", of.hop, of.name);
    }
    let found = growth(free, delayed, hop, stage);
    let both = || format!("{free:#?}\n{delayed:#?}");
    expect(found >= least_ns, format_args!("{stage:?} by {found} ns: {}", both()))?;
    let (of_it, of_all) = (part(delayed) - part(free), whole(delayed) - whole(free));
    expect(of_it > of_all / 2.0, format_args!("{of_it} of {of_all} ns: {}", both()))?;
    for other in &delayed.stages {
        let is_it = (other.hop, other.stage) == (hop, stage);
        let grown = growth(free, delayed, other.hop, other.stage);
        let small = is_it || grown < found / 3.0;
        expect(small, format_args!("{} by {grown} ns: {}", other.name, both()))?;
    }
    Ok(())
}
