//! Forbids system calls that programs of a run do not need and that attacks use.
//!
//! The list names forbidden calls, not allowed ones, because engines run any tools that a project
//! needs. Most calls fail with EPERM. A few, which runtimes try first and can do without, fail with
//! ENOSYS, as on an older kernel.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter, sock_filter,
};
use shikiri_model::confinement::ConfinementLevel;

use super::syscall_numbers::{CLONE, FORBIDDEN, IOCTL, SOCKET, UNKNOWN};
use crate::error::SandboxError;

const EPERM: u32 = 1;
const ENOSYS: u32 = 38;

const AF_UNIX: u64 = 1;
const AF_INET: u64 = 2;
const AF_INET6: u64 = 10;
const AF_NETLINK: u64 = 16;
const SOCK_TYPE_MASK: u64 = 0xf;
/// Datagrams, raw and packet sockets and the like.
const NO_STREAMS: [u64; 6] = [2, 3, 4, 5, 6, 10];
/// Puts characters into a terminal as if they were typed, and pastes into a console.
const TERMINAL_INPUT: [u64; 2] = [0x5412, 0x541C];
/// New namespaces: mount, cgroup, UTS, IPC, user, process, network.
const NEW_NAMESPACES: [u64; 7] =
    [0x0002_0000, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000];

type SeccompRules = BTreeMap<i64, Vec<SeccompRule>>;

/// Forbids the calls for this thread and its later children.
pub(super) fn apply(level: ConfinementLevel) -> Result<(), SandboxError> {
    let refused = build(rules(level)?, EPERM)?;
    let unknown = build(UNKNOWN.iter().map(|call| (*call, Vec::new())).collect(), ENOSYS)?;
    for program in [Some(refused), Some(unknown), other_numbers()].into_iter().flatten() {
        apply_filter(&program).map_err(|error| SandboxError::Seccomp(error.to_string()))?;
    }
    Ok(())
}

fn build(rules: SeccompRules, errno: u32) -> Result<BpfProgram, SandboxError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH);
    let arch = arch.map_err(|error| SandboxError::Seccomp(error.to_string()))?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno), arch);
    filter.and_then(BpfProgram::try_from).map_err(|error| SandboxError::Seccomp(error.to_string()))
}

fn rules(level: ConfinementLevel) -> Result<SeccompRules, SandboxError> {
    let mut rules: SeccompRules = FORBIDDEN.iter().map(|call| (*call, Vec::new())).collect();
    let namespaces =
        NEW_NAMESPACES.iter().map(|flag| rule(&[(0, ArgumentCompare::HasBits(*flag))]));
    rules.insert(CLONE, namespaces.collect::<Result<_, _>>()?);
    let typed = TERMINAL_INPUT.iter().map(|request| rule(&[(1, ArgumentCompare::Is(*request))]));
    rules.insert(IOCTL, typed.collect::<Result<_, _>>()?);
    rules.insert(SOCKET, sockets(level)?);
    Ok(rules)
}

/// Sockets that a run may not have. Without a network of its own it may have no local ones, of which
/// Landlock does not know, and no datagrams, which Landlock does not hold back.
fn sockets(level: ConfinementLevel) -> Result<Vec<SeccompRule>, SandboxError> {
    let mut families = vec![AF_INET, AF_INET6, AF_NETLINK];
    let mut refused =
        vec![rule(&[(0, ArgumentCompare::Is(AF_NETLINK)), (2, ArgumentCompare::IsNot(0))])?];
    if level == ConfinementLevel::Namespaces {
        families.push(AF_UNIX);
    } else {
        for family in [AF_INET, AF_INET6] {
            let types = NO_STREAMS.map(|kind| {
                rule(&[
                    (0, ArgumentCompare::Is(family)),
                    (1, ArgumentCompare::Masked(SOCK_TYPE_MASK, kind)),
                ])
            });
            refused.extend(types.into_iter().collect::<Result<Vec<_>, _>>()?);
        }
    }
    let others: Vec<_> =
        families.iter().map(|family| (0, ArgumentCompare::IsNot(*family))).collect();
    refused.push(rule(&others)?);
    Ok(refused)
}

/// How an argument of a call is compared.
#[derive(Clone, Copy)]
enum ArgumentCompare {
    Is(u64),
    IsNot(u64),
    HasBits(u64),
    Masked(u64, u64),
}

/// All of these together.
fn rule(conditions: &[(u8, ArgumentCompare)]) -> Result<SeccompRule, SandboxError> {
    let conditions = conditions.iter().map(|(argument, compare)| {
        let (operator, value) = match *compare {
            ArgumentCompare::Is(value) => (SeccompCmpOp::Eq, value),
            ArgumentCompare::IsNot(value) => (SeccompCmpOp::Ne, value),
            ArgumentCompare::HasBits(bits) => (SeccompCmpOp::MaskedEq(bits), bits),
            ArgumentCompare::Masked(mask, value) => (SeccompCmpOp::MaskedEq(mask), value),
        };
        SeccompCondition::new(*argument, SeccompCmpArgLen::Dword, operator, value)
    });
    conditions
        .collect::<Result<_, _>>()
        .and_then(SeccompRule::new)
        .map_err(|error| SandboxError::Seccomp(error.to_string()))
}

/// On x86-64 calls have a second set of numbers (x32), which the lists above do not name.
fn other_numbers() -> Option<BpfProgram> {
    const LOAD_NUMBER: u16 = 0x20;
    const JUMP_IF_AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    const FIRST: u32 = 0x4000_0000;
    const ALLOW: u32 = 0x7fff_0000;
    const ERRNO: u32 = 0x0005_0000;
    let line = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    cfg!(target_arch = "x86_64").then(|| {
        vec![
            line(LOAD_NUMBER, 0, 0, 0),
            line(JUMP_IF_AT_LEAST, 0, 1, FIRST),
            line(RETURN, 0, 0, ERRNO | ENOSYS),
            line(RETURN, 0, 0, ALLOW),
        ]
    })
}
