//! The display of a call: the terminal if a person is there, otherwise plain lines.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use shikiri_host::{CallFollowResult, CallUpdate, HostError, SamplingConsent, UserInteraction};
use shikiri_model::host::{ElicitationForm, FormAnswer, HostCall};
use shikiri_model::tool::ToolChange;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::plain::Plain;
use crate::exit::Failure;
use crate::output::note;
use crate::signals::Signals;
use crate::terminal::host::{Person, Screen};

pub(super) enum CallDisplay {
    Person(Arc<Person>),
    Plain(Plain),
}

impl CallDisplay {
    pub(super) fn at_terminal(accepts_changes: bool) -> Self {
        Self::Person(Arc::new(Person::new(&Screen::new()).accepting_changes(accepts_changes)))
    }

    fn interaction(&self) -> &dyn UserInteraction {
        match self {
            Self::Person(person) => person.as_ref(),
            Self::Plain(plain) => plain,
        }
    }

    fn say(&self, text: &str) {
        match self {
            Self::Person(person) => person.screen().say(text),
            Self::Plain(_) => note(text),
        }
    }

    /// Follows a call, which can be cancelled or left.
    pub(super) async fn attend(
        &self,
        calling: impl Future<Output = Result<CallFollowResult, HostError>>,
        cancel: &CancellationToken,
    ) -> Result<CallFollowResult, Failure> {
        let interrupts = match self {
            Self::Person(person) => Some(person.screen().interrupts()),
            Self::Plain(_) => None,
        };
        let cancelling = || {
            self.say("shikiri: cancelling; once more to leave it as it is");
            cancel.cancel();
        };
        let attended = attend(calling, interrupts, cancelling).await;
        self.leave();
        match attended? {
            Attended::Done(called) => Ok(called?),
            Attended::Left(signal) => {
                self.say("shikiri: left as it is; `shikiri host resume` takes it up");
                Err(Failure::Stopped(signal))
            }
        }
    }

    fn leave(&self) {
        if let Self::Person(person) = self {
            person.leave();
        }
    }
}

pub(super) enum Attended<T> {
    Done(T),
    /// By this signal.
    Left(u8),
}

/// The first Ctrl-C cancels the work and waits for its end; the second leaves it as it is.
pub(super) async fn attend<T>(
    going_on: impl Future<Output = T>,
    interrupts: Option<watch::Receiver<u64>>,
    cancelling: impl Fn(),
) -> Result<Attended<T>, Failure> {
    let mut signals = Signals::catch()?;
    let mut interrupts = interrupts;
    let mut going_on = std::pin::pin!(going_on);
    let mut is_cancelled = false;
    loop {
        let typed = async {
            let interrupted = match &mut interrupts {
                Some(interrupts) => interrupts.changed().await.is_ok(),
                None => false,
            };
            if !interrupted {
                std::future::pending::<()>().await;
            }
        };
        let signal = tokio::select! {
            done = &mut going_on => return Ok(Attended::Done(done)),
            signal = signals.next() => signal,
            () = typed => 2,
        };
        if is_cancelled || signal != 2 {
            return Ok(Attended::Left(signal));
        }
        is_cancelled = true;
        cancelling();
    }
}

#[async_trait]
impl UserInteraction for CallDisplay {
    fn show(&self, call: &HostCall, shown: &CallUpdate) {
        self.interaction().show(call, shown);
    }

    fn tell_changes(&self, server: &str, changes: &[ToolChange]) {
        self.interaction().tell_changes(server, changes);
    }

    async fn accepts_change(&self, server: &str, change: &ToolChange) -> bool {
        self.interaction().accepts_change(server, change).await
    }

    async fn ask(&self, call: &HostCall, form: &ElicitationForm) -> FormAnswer {
        self.interaction().ask(call, form).await
    }

    async fn visit(&self, call: &HostCall, message: &str, url: &str) -> FormAnswer {
        self.interaction().visit(call, message, url).await
    }

    async fn may_ask_model(&self, call: &HostCall, model: &str, prompt: &str) -> SamplingConsent {
        self.interaction().may_ask_model(call, model, prompt).await
    }

    async fn sample(&self, call: &HostCall, params: &Value) -> Result<Value, String> {
        self.interaction().sample(call, params).await
    }
}
