//! An instance's endpoint as its only way out, to the places of its list alone.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use skein_runner::endpoint::{Endpoint, Upstreams};
use skein_runner::instance::ledger::Row;
use skein_shared::fence::{Epoch, Token};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Greets whoever comes, and says the same.
async fn greeter() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                stream.write_all(b"honk ").await.unwrap();
                let (mut from, mut to) = stream.split();
                tokio::io::copy(&mut from, &mut to).await
            });
        }
    });
    port
}

/// The endpoint of an instance that may reach these places.
async fn endpoint(places: &[String]) -> Endpoint {
    let token = Token { epoch: Epoch(1), number: 1 };
    let mut row = Row::new("worker-1".into(), "default".into(), "worker".into(), token, "access");
    row.secret = "secret".to_owned();
    row.egress = places.iter().map(|place| place.parse().unwrap()).collect();
    Endpoint::open(&row, Upstreams::default()).await.unwrap()
}

/// Asks for a tunnel and gives the answer's head with the connection.
async fn connect(endpoint: &Endpoint, place: &str, password: &str) -> (String, TcpStream) {
    let mut stream = TcpStream::connect(("127.0.0.1", endpoint.port())).await.unwrap();
    let shown = BASE64_STANDARD.encode(format!("skein:{password}"));
    let asked =
        format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\nProxy-Authorization: Basic {shown}\r\n\r\n");
    stream.write_all(asked.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    (String::from_utf8(head).unwrap(), stream)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_reaches_what_is_on_its_list_and_nothing_else() {
    let (listed, other) = (greeter().await, greeter().await);
    let endpoint = endpoint(&[format!("127.0.0.1:{listed}"), format!("localhost:{other}")]).await;
    let (head, mut stream) = connect(&endpoint, &format!("127.0.0.1:{listed}"), "secret").await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    stream.write_all(b"and hiss").await.unwrap();
    let mut said = [0; 13];
    stream.read_exact(&mut said).await.unwrap();
    assert_eq!(&said, b"honk and hiss");

    for (place, password, status) in [
        (format!("127.0.0.1:{other}"), "secret", 403),
        (format!("127.0.0.1:{listed}"), "wrong", 407),
        ("nowhere".to_owned(), "secret", 400),
        // A name that leads to the machine itself, though it is listed.
        (format!("localhost:{other}"), "secret", 502),
    ] {
        let (head, _) = connect(&endpoint, &place, password).await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{place}: {head}");
    }

    // With the endpoint its tunnels go.
    drop(endpoint);
    assert_eq!(stream.read(&mut said).await.unwrap_or(0), 0, "the tunnel outlived its instance");
}
