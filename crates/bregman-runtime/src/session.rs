//! The memory of calls, which a model keeps from one call to the next.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bregman_network::Architecture;

use crate::network::{Network, Workspace};
use crate::{FrontEnd, Result};

/// What one call needs.
pub(crate) struct Session {
    pub(crate) workspace: Workspace,
    #[cfg(feature = "audio")]
    pub(crate) extractor: crate::front_end::Extractor,
}

impl Session {
    #[cfg_attr(not(feature = "audio"), expect(unused_variables, reason = "they describe the filterbank"))]
    pub(crate) fn new(network: &Network, front_end: &FrontEnd, architecture: &Architecture) -> Result<Self> {
        Ok(Self {
            workspace: network.workspace(),
            #[cfg(feature = "audio")]
            extractor: crate::front_end::Extractor::new(front_end, architecture)?,
        })
    }
}

/// Sessions that no call is using: as many in all as calls ever ran at a time.
pub(crate) struct SessionPool(Mutex<Vec<Session>>);

impl SessionPool {
    pub(crate) fn new(first: Session) -> Self {
        Self(Mutex::new(vec![first]))
    }

    /// Calls `work` with an idle session, or with what `new` makes where there is none.
    pub(crate) fn with<T>(
        &self,
        new: impl FnOnce() -> Result<Session>,
        work: impl FnOnce(&mut Session) -> Result<T>,
    ) -> Result<T> {
        let idle = self.idle().pop();
        let mut session = idle.map_or_else(new, Ok)?;
        let result = work(&mut session);
        self.idle().push(session);
        result
    }

    /// Bytes of the workspaces of idle sessions.
    pub(crate) fn bytes(&self) -> usize {
        self.idle().iter().map(|session| session.workspace.bytes()).sum()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Session>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
