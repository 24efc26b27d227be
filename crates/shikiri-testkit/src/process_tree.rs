//! The processes of a folder and the ports that they listen on, according to the system.

use std::collections::BTreeSet;
use std::path::Path;

/// Processes with this folder on their command lines, and all their descendants.
pub fn processes_of_folder(folder: &Path) -> BTreeSet<u32> {
    let folder = folder.to_str().expect("a path in UTF-8");
    let all: Vec<(u32, u32)> =
        process_ids().into_iter().filter_map(|pid| Some((pid, parent_of(pid)?))).collect();
    let is_told = |pid: u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(folder)
    };
    let mut found: BTreeSet<u32> =
        all.iter().map(|(pid, _)| *pid).filter(|pid| is_told(*pid)).collect();
    loop {
        let below: Vec<u32> = all
            .iter()
            .filter(|(pid, parent)| found.contains(parent) && !found.contains(pid))
            .map(|(pid, _)| *pid)
            .collect();
        if below.is_empty() {
            return found;
        }
        found.extend(below);
    }
}

/// The TCP ports on which these processes listen.
pub fn listening_ports(processes: &BTreeSet<u32>) -> Vec<u16> {
    let sockets: BTreeSet<String> = processes.iter().flat_map(|pid| socket_inodes(*pid)).collect();
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(std::fs::read_to_string);
    let tables: Vec<String> = tables.into_iter().flatten().collect();
    let lines = tables.iter().flat_map(|table| table.lines().skip(1));
    lines
        .filter_map(|line| {
            // Number, local address, remote address, state (0A: listens), …, inode.
            let fields: Vec<&str> = line.split_whitespace().collect();
            let is_found = fields.get(3) == Some(&"0A") && sockets.contains(*fields.get(9)?);
            let (_, port) = fields.get(1)?.rsplit_once(':')?;
            is_found.then(|| u16::from_str_radix(port, 16).ok())?
        })
        .collect()
}

fn process_ids() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may contain anything; the state and the parent follow it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn socket_inodes(pid: u32) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| {
            let link = std::fs::read_link(entry.path()).ok()?;
            Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
        })
        .collect()
}
