package peer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/cell/internal/memnet"
)

// far is a connection over which what is read takes time.
type far struct{ net.Conn }

func (f far) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	time.Sleep(50 * time.Millisecond)
	return n, err
}

// A flood of strangers from one address displaces its own connections, and not a replica 50 ms away, whose
// handshake takes as long.
func TestFloodDuringHandshakes(t *testing.T) {
	for name, encrypted := range map[string]bool{"without": false, "with certificates": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCertified(t)
				wire := memnet.New()
				with := func(id string) func(*PortConfig) {
					return func(cfg *PortConfig) {
						if encrypted {
							cfg.Certificates = c.replica("foo", id)
						}
						if id == "r2" {
							connect := cfg.Connect
							cfg.Connect = func(address string, timeout time.Duration) (net.Conn, error) {
								conn, err := connect(address, timeout)
								if err != nil {
									return nil, err
								}
								return far{conn}, nil
							}
						}
					}
				}
				port, _ := newTestPort(wire, "foo", "r1", with("r1"))
				defer port.close()
				caller, _ := newTestPort(wire, "foo", "r2", with("r2"))
				defer caller.close()
				go func() {
					time.Sleep(10 * time.Millisecond)
					for range 65 {
						conn, err := wire.Dialer("stranger")("r1", time.Second)
						if err == nil {
							defer conn.Close()
						}
					}
					time.Sleep(time.Second)
				}()
				conn, err := caller.dial(raftStream, "r1", "r1", 2*time.Second)
				if err != nil {
					t.Errorf("65 connections that say nothing keep a replica out: %v", err)
				} else {
					conn.Close()
				}
				time.Sleep(2 * time.Second)
			})
		})
	}
}

// A stranger does not choose how long the lines of the log are.
func TestLinesOfTheLogAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCertified(t)
		wire := memnet.New()
		port, log := newTestPort(wire, "foo", "r1", having(c.replica("foo", "r1")))
		defer port.close()
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		c.check(err)
		der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: strings.Repeat("\x01", 8<<10)}, NotAfter: time.Now().Add(time.Hour)}, &x509.Certificate{}, key.Public(), key)
		c.check(err)
		conn, err := wire.Dialer("stranger")("r1", time.Second)
		c.check(err)
		encrypted := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
		if _, err := encrypted.Write(encoded(t, hello{kind: raftStream, cell: "foo", from: "r2", to: "r1"}, 0, 'c')); err != nil {
			t.Fatal(err)
		}
		_, _ = encrypted.Read(make([]byte, 1))
		synctest.Wait()
		if n := len(strings.Join(log.Take(), "")); n == 0 || n > 4<<10 {
			t.Errorf("one refused connection is logged in %d bytes", n)
		}
		_ = conn.Close()
	})
}
