//! How strongly a program that an engine starts is separated from the rest of the machine.

use serde::{Deserialize, Serialize};

use crate::macros::text_enum;

text_enum! {
    /// From weakest to strongest.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum ConfinementLevel {
        /// The program can do everything that the server's user can.
        None = "none",
        /// Landlock and a seccomp filter.
        Landlock = "landlock",
        /// New namespaces, Landlock and a seccomp filter.
        Namespaces = "namespaces",
    }
}

/// The level that a machine allows, and the user that engines run as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    pub level: ConfinementLevel,
    /// None if engines run as the server's user.
    pub engine_user: Option<u32>,
}

impl Confinement {
    /// Whether tenants that do not trust each other may share this machine.
    pub fn separates_tenants(self) -> bool {
        match self.level {
            ConfinementLevel::Namespaces => true,
            ConfinementLevel::Landlock => self.engine_user.is_some(),
            ConfinementLevel::None => false,
        }
    }
}

/// The conditions under which an engine may start programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConfinementPolicy {
    /// The server can be reached from other machines.
    pub is_remote: bool,
    /// The operator accepts that engines run unconfined.
    pub accepts_unconfined: bool,
}

impl ConfinementPolicy {
    /// Whether engines may work for this tenant. The strongest level that the machine allows is
    /// used in any case.
    pub fn accepts(self, is_local_tenant: bool, reached: Confinement) -> bool {
        let is_own_machine = is_local_tenant && !self.is_remote;
        self.accepts_unconfined
            || reached.separates_tenants()
            || (is_own_machine && reached.level >= ConfinementLevel::Landlock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_gets_no_less_than_its_level() {
        let reached = |level, engine_user| Confinement { level, engine_user };
        let strict = ConfinementPolicy::default();
        let remote = ConfinementPolicy { is_remote: true, ..strict };
        let open = ConfinementPolicy { accepts_unconfined: true, ..remote };
        let landlock = reached(ConfinementLevel::Landlock, None);
        let other_user = reached(ConfinementLevel::Landlock, Some(7));
        let namespaces = reached(ConfinementLevel::Namespaces, None);
        let none = reached(ConfinementLevel::None, Some(7));
        for policy in [strict, remote] {
            for is_local in [true, false] {
                assert!(
                    policy.accepts(is_local, namespaces) && policy.accepts(is_local, other_user)
                );
                assert!(!policy.accepts(is_local, none));
            }
            assert!(!policy.accepts(false, landlock));
        }
        assert!(strict.accepts(true, landlock) && !remote.accepts(true, landlock));
        assert!(open.accepts(false, none));
    }
}
