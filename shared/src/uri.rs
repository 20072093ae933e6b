//! URIs.
