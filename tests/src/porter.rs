//! Shows a token for programs that can show none, and changes nothing else of what goes through.

use anyhow::Result;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

/// Ends with the test that made it.
pub struct Porter {
    /// Its address, `http://127.0.0.1:PORT`.
    pub url: String,
    _serves: AbortOnDropHandle<()>,
}

#[derive(Clone)]
struct Way {
    client: reqwest::Client,
    /// Where it goes on, without a path.
    to: String,
    token: HeaderValue,
}

impl Porter {
    /// Stands before what listens at `to`.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn stand(to: &str, token: &str) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let way = Way {
            client: reqwest::Client::new(),
            to: to.to_owned(),
            token: HeaderValue::from_str(&format!("Bearer {token}"))?,
        };
        let router = Router::new().fallback(pass).with_state(way);
        let serves = tokio::spawn(async move {
            // It serves until it is aborted.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { url, _serves: AbortOnDropHandle::new(serves) })
    }
}

/// Passes a request on. The one who asked may go, and then the other end sees it.
async fn pass(State(way): State<Way>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut headers = parts.headers;
    headers.insert(header::AUTHORIZATION, way.token.clone());
    let sent = way
        .client
        .request(parts.method, format!("{}{path}", way.to))
        .headers(headers)
        .body(reqwest::Body::wrap_stream(body.into_data_stream()))
        .send()
        .await;
    match sent {
        Ok(answer) => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = answer.status();
            *response.headers_mut() = answer.headers().clone();
            // The length and the form of what is sent on are this server's matter.
            response.headers_mut().remove(header::TRANSFER_ENCODING);
            *response.body_mut() = Body::from_stream(answer.bytes_stream());
            response
        }
        Err(error) => {
            let mut response = Response::new(Body::from(error.to_string()));
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            response
        }
    }
}
