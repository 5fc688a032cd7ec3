//! Parts of gateways that are stored under a name of their own, and templates.

use super::{Metadata, Rewrite, Route};
use serde::{Deserialize, Serialize};

/// A route that is stored under a name; gateways take their routes' settings from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedRoute {
    /// A general name, or an address outside in brackets.
    pub name: String,
    /// Free-form content, kept verbatim.
    pub metadata: Metadata,
    /// The route; it has no metadata of its own and is no reference.
    pub route: Route,
}

/// A rewrite that is stored under a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedRewrite {
    /// The general name.
    pub name: String,
    /// Free-form content, kept verbatim.
    pub metadata: Metadata,
    /// The rewrite.
    pub rewrite: Rewrite,
}

/// Part of a document, for other documents to import.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Template {
    /// The general name.
    pub name: String,
    /// Free-form content, kept verbatim.
    pub metadata: Metadata,
    /// What is imported.
    pub definition: Metadata,
}
