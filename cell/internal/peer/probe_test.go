package peer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"errors"
	"io"
	"math/big"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/cell/internal/memnet"
	"github.com/chubbylock/chubby/cell/internal/testbed"
)

// scriptedPeer is a replica that answers probes as the test says. The
// connections that a prober makes to it arrive at conns.
type scriptedPeer struct {
	conns chan net.Conn
	down  atomic.Bool
}

// newScriptedPeer returns a peer, and a prober that can reach only this peer.
func newScriptedPeer() (*scriptedPeer, *Prober) {
	peer := &scriptedPeer{conns: make(chan net.Conn, 100)}
	return peer, &Prober{
		heard: func(string, Report) {},
		clock: testbed.Clock(), stop: make(chan struct{}), peers: map[string]*probePeer{},
		connect: func(string, string) (net.Conn, error) {
			if peer.down.Load() {
				return nil, errors.New("no route to host")
			}
			ours, theirs := net.Pipe()
			peer.conns <- theirs
			return ours, nil
		},
	}
}

func readQuestion(t *testing.T, conn net.Conn) uint64 {
	t.Helper()
	var frame [questionSize]byte
	testbed.NoErr(t, testbed.ErrOf(io.ReadFull(conn, frame[:])))
	return binary.BigEndian.Uint64(frame[:])
}

func writeAnswer(conn net.Conn, number, term uint64) error {
	var frame [answerSize]byte
	binary.BigEndian.PutUint64(frame[:], number)
	binary.BigEndian.PutUint64(frame[8:], term)
	_, err := conn.Write(frame[:])
	return err
}

// answersOf asks and returns the channel for the answer's term.
func answersOf(p *Prober) chan uint64 {
	answer := make(chan uint64, 1)
	p.Ask("r2", "b", func(r Report) { answer <- r.Term })
	return answer
}

func pending(answer chan uint64) bool {
	synctest.Wait()
	return len(answer) == 0
}

// TestProbeAnswersOnlyLaterQuestions: a caller does not get the answer to a
// question that was sent before it asked.
func TestProbeAnswersOnlyLaterQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peer, p := newScriptedPeer()
		defer p.Close()
		first := answersOf(p)
		conn := <-peer.conns
		n := readQuestion(t, conn)
		second := answersOf(p) // while the first is in flight
		testbed.NoErr(t, writeAnswer(conn, n, 7))
		if term := <-first; term != 7 {
			t.Errorf("the first caller got term %d", term)
		}
		if !pending(second) {
			t.Fatal("the second caller got an answer to a question sent before it asked")
		}
		testbed.NoErr(t, writeAnswer(conn, readQuestion(t, conn), 8))
		if term := <-second; term != 8 {
			t.Errorf("the second caller got term %d", term)
		}
	})
}

// TestProbeRefusesMadeUpAnswers: an answer must have the number of an open
// question of this connection.
func TestProbeRefusesMadeUpAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peer, p := newScriptedPeer()
		defer p.Close()
		answer := answersOf(p)
		for _, number := range []func(uint64) uint64{
			func(n uint64) uint64 { return n + 1 }, func(uint64) uint64 { return 0 }, func(uint64) uint64 { return 1<<64 - 1 },
		} {
			conn := <-peer.conns
			_ = writeAnswer(conn, number(readQuestion(t, conn)), 7) // the prober may close at the first byte
			if !pending(answer) {
				t.Fatal("a made-up answer was accepted")
			}
			if _, err := conn.Read(make([]byte, 1)); err == nil {
				t.Error("the connection of a made-up answer stays open")
			}
		}
		conn := <-peer.conns
		n := readQuestion(t, conn)
		_ = writeAnswer(conn, n, 7)
		<-answer
		_ = writeAnswer(conn, n, 7) // a repeated answer
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("a repeated answer was taken")
		}
	})
}

// TestProbeOutlivesConnections: a caller gets its answer after the peer's
// restart, and after its machine has vanished without closing the connection.
// The memory for a peer that stays away is bounded.
func TestProbeOutlivesConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peer, p := newScriptedPeer()
		defer p.Close()
		answer := answersOf(p)
		conn := <-peer.conns
		readQuestion(t, conn)
		_ = conn.Close() // it restarts
		conn = <-peer.conns
		_ = writeAnswer(conn, readQuestion(t, conn), 7)
		<-answer

		answer = answersOf(p)
		readQuestion(t, conn) // and no answer: the machine has vanished
		for range 50 * maxAsked {
			answersOf(p)
		}
		synctest.Wait()
		q := p.peers["r2"]
		q.mu.Lock()
		if len(q.waiting) > maxAsked || q.inFlight > probeWindow {
			t.Errorf("%d callers wait and %d questions are out; the bounds are %d and %d", len(q.waiting), q.inFlight, maxAsked, probeWindow)
		}
		q.mu.Unlock()
		testbed.Pass(2 * maxAnswerWait)
		last := answersOf(p)
		conn = <-peer.conns
		_ = writeAnswer(conn, readQuestion(t, conn), 9)
		if term := <-last; term != 9 {
			t.Errorf("over the new connection: term %d", term)
		}
		if !pending(answer) {
			t.Error("a caller pushed out by maxAsked newer ones was answered")
		}

		peer.down.Store(true)
		_ = conn.Close()
		last = answersOf(p)
		testbed.Pass(10 * time.Second)
		peer.down.Store(false)
		conn = <-peer.conns
		_ = writeAnswer(conn, readQuestion(t, conn), 10)
		if term := <-last; term != 10 {
			t.Errorf("after it came back: term %d", term)
		}

		moved := make(chan uint64, 1)
		p.Ask("r2", "another address", func(r Report) { moved <- r.Term })
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("the connection to the old address stays open")
		}
		conn = <-peer.conns
		_ = writeAnswer(conn, readQuestion(t, conn), 11)
		<-moved
	})
}

// TestProbeWaitsForRaft: no probe is answered before Raft has loaded its
// persisted term. With an answer of 0, a replica would confirm a leader that
// was replaced before a restart.
func TestProbeWaitsForRaft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wire := memnet.New()
		voter, _ := newTestPort(wire, "foo", "r2")
		defer voter.close()
		port, _ := newTestPort(wire, "foo", "r1")
		defer port.close()
		p := NewProber(port, testbed.Clock(), func(string, Report) {})
		defer p.Close()
		answer := make(chan Report, 1)
		p.Ask("r2", "r2", func(r Report) { answer <- r })
		testbed.Pass(5 * time.Second)
		if len(answer) != 0 {
			t.Fatalf("answered %v before raft was there", <-answer)
		}
		voter.AnswerProbes(func() Report { return Report{Term: 3, Last: 17, Applied: 16, History: 5, MaxLevel: 2} })
		if got, want := <-answer, (Report{Term: 3, Last: 17, Applied: 16, History: 5, MaxLevel: 2}); got != want {
			t.Errorf("answered %v, want %v", got, want)
		}
	})
}

// TestProbeWindow: a peer that reads questions and answers none gets at most
// probeWindow of them.
func TestProbeWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peer, p := newScriptedPeer()
		defer p.Close()
		answersOf(p)
		conn := <-peer.conns
		taken := make(chan uint64, 10*probeWindow)
		go func() {
			var frame [questionSize]byte
			for {
				if _, err := io.ReadFull(conn, frame[:]); err != nil {
					return
				}
				taken <- binary.BigEndian.Uint64(frame[:])
			}
		}()
		var last chan uint64
		for range 10 * probeWindow {
			last = answersOf(p)
			synctest.Wait()
		}
		if len(taken) != probeWindow {
			t.Errorf("%d questions in flight, want %d", len(taken), probeWindow)
		}
		testbed.NoErr(t, writeAnswer(conn, <-taken, 7))
		synctest.Wait()
		for len(taken) > 1 {
			<-taken
		}
		testbed.NoErr(t, writeAnswer(conn, <-taken, 7)) // the newest, sent once there was room
		if term := <-last; term != 7 {
			t.Errorf("the newest caller got term %d", term)
		}
	})
}

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
		testbed.NoErr(t, testbed.ErrOf(encrypted.Write(encoded(t, hello{kind: raftStream, cell: "foo", from: "r2", to: "r1"}, 0, 'c'))))
		_, _ = encrypted.Read(make([]byte, 1))
		synctest.Wait()
		if n := len(strings.Join(log.Take(), "")); n == 0 || n > 4<<10 {
			t.Errorf("one refused connection is logged in %d bytes", n)
		}
		_ = conn.Close()
	})
}
