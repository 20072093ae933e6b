//! Who makes a gRPC call, and how a refusal is put into a status.

use std::error::Error as _;
use std::sync::Arc;

use skein_shared::{Code, Refusal};
use tonic::Status;
use tonic::metadata::MetadataMap;

use crate::auth::Credential;
use crate::service::access::Access;

/// Holds the refusal's code, since several share one gRPC status.
pub const CODE: &str = "skein-code";

/// Reads the caller from `authorization: Bearer …`.
///
/// # Errors
/// `unauthenticated` when there is no token or it is not a good one.
pub async fn identify(metadata: &MetadataMap, access: &Access) -> Result<Arc<Credential>, Refusal> {
    let header = metadata.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
    match header.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => {
            access.credential(token.trim()).await
        }
        _ => Err(Refusal::new(Code::Unauthenticated, "send a token as `authorization: Bearer …`")),
    }
}

/// A refusal as gRPC carries it.
pub fn status(refusal: &Refusal) -> Status {
    let mut status = Status::new(tonic::Code::from_i32(refusal.code.grpc()), refusal.message.clone());
    if let Ok(code) = refusal.code.as_str().parse() {
        status.metadata_mut().insert(CODE, code);
    }
    status
}

/// Whether no node has sent this: the connection has broken before the answer had come, or all of it.
pub fn is_broken(status: &Status) -> bool {
    status.metadata().get(CODE).is_none() && status.source().is_some()
}

/// The refusal that a status carries. What was asked when the connection broke may be done.
pub fn refusal(status: &Status) -> Refusal {
    if is_broken(status) {
        let problem = format!(
            "the connection to the node broke before its answer had come ({}); look whether it was done, and call \
             again if not",
            status.message()
        );
        return Refusal::new(Code::Unknown, problem);
    }
    let named = status.metadata().get(CODE).and_then(|value| value.to_str().ok());
    let exact = named.and_then(|name| Code::ALL.iter().find(|code| code.as_str() == name));
    let similar = || Code::ALL.iter().find(|code| code.grpc() == i32::from(status.code()));
    let code = exact.or_else(similar).copied().unwrap_or(Code::Internal);
    Refusal::new(code, status.message())
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_refusal_survives_the_wire() {
        for &code in Code::ALL {
            assert_eq!(refusal(&status(&Refusal::new(code, "so it is"))), Refusal::new(code, "so it is"));
        }
        assert_eq!(refusal(&Status::unavailable("gone")).code, Code::Overloaded);
    }

    #[test]
    fn a_connection_that_broke_is_no_failure_of_the_node() {
        let broken = Status::from_error(Box::new(io::Error::from(io::ErrorKind::BrokenPipe)));
        let told = refusal(&broken);
        assert!(is_broken(&broken) && told.code == Code::Unknown, "{told:?}");
        assert!(told.message.contains("look whether it was done"), "{told}");
        let failed = status(&Refusal::new(Code::Internal, "the store has failed"));
        assert!(!is_broken(&failed) && refusal(&failed).code == Code::Internal);
    }
}
