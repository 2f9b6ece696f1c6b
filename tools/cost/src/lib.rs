//! Instructions of user code per packet, by callgrind.

use std::path::Path;
use std::process::Command;

/// Turns of the shorter and of the longer run.
const TURNS: [u32; 2] = [50, 250];

/// Instructions per packet of a case of this program, in its function `user_side`: the difference of
/// two runs of different length, in which what is done once cancels.
///
/// The program runs itself with `--turns CASE COUNT`, which is to run `COUNT` turns of `burst` packets.
///
/// # Errors
///
/// What valgrind printed, or why its output has no total.
pub fn instructions(case: &str, burst: u32) -> Result<f64, String> {
    let [short, long] = TURNS.map(|turns| counted(case, turns));
    let packets = f64::from((TURNS[1] - TURNS[0]) * burst);
    Ok((long? - short?) / packets)
}

fn counted(case: &str, turns: u32) -> Result<f64, String> {
    let itself = std::env::current_exe().map_err(|error| error.to_string())?;
    let out = itself.with_extension(format!("{case}-{turns}.callgrind"));
    let output = Command::new("valgrind")
        .args(["--quiet", "--tool=callgrind", "--toggle-collect=*user_side*"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(itself)
        .args(["--turns", case, &turns.to_string()])
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    total(&out)
        .filter(|&total| total > 0.0)
        .ok_or_else(|| format!("{} has no totals", out.display()))
}

fn total(out: &Path) -> Option<f64> {
    let text = std::fs::read_to_string(out).ok()?;
    let total = text.lines().find_map(|line| line.strip_prefix("totals: "))?;
    total.trim().parse().ok()
}
