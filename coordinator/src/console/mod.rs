//! The web console: pages for people, made on the server, behind a login.
//!
//! `door` is the login and its session, and keeps other sites' forms out; `routes` takes requests in; `sections`
//! gathers what each page shows, from the services alone; `page` puts it into the templates, `words` says times and
//! statuses as people do; `live` sends a page's changing part anew when the swarm has changed, and `seats` says to how
//! many; `pace` says how many pages an agent may ask for; `actions` are the operators' actions; `graph`, `chart` and
//! `tree` lay pictures out; `trends` remembers how the node fared.

mod actions;
mod chart;
mod door;
mod fields;
mod graph;
mod live;
mod pace;
mod page;
mod routes;
mod seats;
mod sections;
#[cfg(test)]
mod tests;
mod tree;
pub mod trends;
mod words;

use std::sync::Arc;

use axum::Router;
use tokio_util::sync::CancellationToken;

use crate::service::Service;
use crate::service::access::Access;
pub use door::SESSION;
use pace::Pace;
use page::Pages;
use seats::Seats;
pub use trends::Trends;

/// What the pages have in common. Cheap to clone.
#[derive(Clone)]
struct Console {
    service: Service,
    access: Access,
    pages: Arc<Pages>,
    trends: Trends,
    /// The browser reaches it by HTTPS, so its cookie goes over nothing else.
    secure: bool,
    seats: Seats,
    pace: Pace,
    stop: CancellationToken,
}

/// The pages of a node. `url` is where people reach it.
pub fn router(
    service: Service,
    access: Access,
    trends: Trends,
    url: &str,
    stop: CancellationToken,
) -> Router {
    routes::router(Console {
        service,
        access,
        pages: Arc::new(Pages::new()),
        trends,
        secure: url.starts_with("https://"),
        seats: Seats::default(),
        pace: Pace::default(),
        stop,
    })
}
