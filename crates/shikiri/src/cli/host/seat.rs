//! Who watches a call: the person at the terminal, or the plain audience where nobody sits there.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use shikiri_app::host::{Audience, Called, Consent, HostError, Shown};
use shikiri_model::host::{Answer, Form, HostCall};
use tokio_util::sync::CancellationToken;

use super::plain::Plain;
use crate::exit::Failure;
use crate::output::note;
use crate::signals::Signals;
use crate::terminal::host::{Person, Screen};

pub(super) enum Seat {
    Taken(Arc<Person>),
    Empty(Plain),
}

impl Seat {
    pub(super) fn at_terminal() -> Self {
        Self::Taken(Arc::new(Person::new(&Screen::new())))
    }

    fn audience(&self) -> &dyn Audience {
        match self {
            Self::Taken(person) => person.as_ref(),
            Self::Empty(plain) => plain,
        }
    }

    fn say(&self, text: &str) {
        match self {
            Self::Taken(person) => person.screen().say(text),
            Self::Empty(_) => note(text),
        }
    }

    /// Ctrl-C where it is typed into a question.
    async fn interrupted(&self) {
        match self {
            Self::Taken(person) => person.screen().interrupted().await,
            Self::Empty(_) => std::future::pending().await,
        }
    }

    /// The first Ctrl-C cancels the call and waits for its end; the second leaves it as it is.
    pub(super) async fn attend(
        &self,
        calling: impl Future<Output = Result<Called, HostError>>,
        cancel: &CancellationToken,
    ) -> Result<Called, Failure> {
        let mut signals = Signals::catch()?;
        let mut calling = std::pin::pin!(calling);
        loop {
            let signal = tokio::select! {
                called = &mut calling => {
                    self.leave();
                    return Ok(called?);
                }
                signal = signals.next() => signal,
                () = self.interrupted() => 2,
            };
            if cancel.is_cancelled() || signal != 2 {
                self.leave();
                self.say("shikiri: left as it is; `shikiri host resume` takes it up");
                return Err(Failure::Stopped(signal));
            }
            self.say("shikiri: cancelling; once more to leave it as it is");
            cancel.cancel();
        }
    }

    fn leave(&self) {
        if let Self::Taken(person) = self {
            person.leave();
        }
    }
}

#[async_trait]
impl Audience for Seat {
    fn show(&self, call: &HostCall, shown: &Shown) {
        self.audience().show(call, shown);
    }

    async fn ask(&self, call: &HostCall, form: &Form) -> Answer {
        self.audience().ask(call, form).await
    }

    async fn visit(&self, call: &HostCall, message: &str, url: &str) -> Answer {
        self.audience().visit(call, message, url).await
    }

    async fn may_ask_model(&self, call: &HostCall, model: &str, prompt: &str) -> Consent {
        self.audience().may_ask_model(call, model, prompt).await
    }

    async fn sample(&self, call: &HostCall, params: &Value) -> Result<Value, String> {
        self.audience().sample(call, params).await
    }
}
