//! The machine: its clock that all processes share, limits, and a process's memory.

use std::fs;

use anyhow::{Context, Result};
use rustix::param::clock_ticks_per_second;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds on a clock that is the same in every process of this machine.
pub(crate) fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap_or(0)
}

/// As many open files as this process may have; thousands of streams need them.
pub(crate) fn raise_open_files() -> Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
        .context("cannot raise the limit of open files")
}

/// Resident memory in KiB.
pub(crate) fn resident_kib(process: u32) -> Result<f64> {
    status_kib(process, "VmRSS:")
}

/// The most resident memory that a process ever had, in KiB.
pub(crate) fn peak_kib(process: u32) -> Result<f64> {
    status_kib(process, "VmHWM:")
}

fn status_kib(process: u32, field: &str) -> Result<f64> {
    let path = format!("/proc/{process}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.with_context(|| format!("{path} has no {field}"))?.parse()?)
}

/// Processor time that a process has spent since it started.
pub(crate) fn cpu_seconds(process: u32) -> Result<f64> {
    let path = format!("/proc/{process}/stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    // The name comes second, in brackets, and may hold anything. User and system time are the
    // 12th and 13th word after it.
    let words = stat.rsplit_once(')').map(|(_, words)| words.split_whitespace());
    let times = words.with_context(|| format!("{path} has no name"))?.skip(11).take(2);
    let ticks = times.map(str::parse::<u64>).sum::<Result<u64, _>>()?;
    Ok(ticks as f64 / clock_ticks_per_second() as f64)
}
