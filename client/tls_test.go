package client

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/internal/certs"
)

// A master that says it is at ":7421" is not dialled: nothing would say whose certificate its server has to have.
func TestEncryptionNeedsAHost(t *testing.T) {
	a, b := net.Pipe()
	defer b.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := newTestEncryption(t).secure(ctx, a, ":7421")
	if !errors.Is(err, api.Unauthenticated) {
		t.Error(err)
	}
	if _, err := a.Write([]byte("x")); err == nil {
		t.Error("the connection stays open")
	}
}

func newTestEncryption(t *testing.T) *encryption {
	t.Helper()
	files := TLSFiles{CA: t.TempDir() + "/ca.crt"}
	authority, err := certs.NewAuthority("test", time.Hour)
	if err == nil {
		err = authority.Write(files.CA, t.TempDir()+"/ca.key")
	}
	if err != nil {
		t.Fatal(err)
	}
	store, err := certs.Open(files)
	if err != nil {
		t.Fatal(err)
	}
	return &encryption{certificates: store, logger: slog.New(slog.DiscardHandler)}
}
