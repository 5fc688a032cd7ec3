//! Decides from what a proxy's configuration is generated.

use super::Context;
use super::archive::with_fact;
use crate::event::{Event, Fact};
use crate::state::State;
use serde_json::Value;

/// Replaces the template, or goes back to Segue's own. Nothing happens when it is the one in use.
pub(super) fn set_template(
    state: &State,
    (kind, name): (&str, &str),
    template: Option<&str>,
    context: &Context,
) -> Vec<Event> {
    if state.configuration_template(kind, name).map(|used| used.as_str()) == template {
        return Vec::new();
    }
    let tags = ["marshaller:template".to_owned(), format!("type:{kind}"), format!("name:{name}")];
    let fact = Fact::ConfigurationTemplate {
        kind: kind.to_owned(),
        name: name.to_owned(),
        template: template.map(str::to_owned),
    };
    vec![with_fact("event", tags, Value::String(String::new()), fact, context)]
}
