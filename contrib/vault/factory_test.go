package chubbyvault

import (
	"errors"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/hashicorp/go-hclog"
)

func TestNewBackend(t *testing.T) {
	b, err := NewBackend(map[string]string{
		"path": "/ls/foo/v", "cell": "foo", "servers": "a:1, b:2", "lease": "20s", "lock_delay": "3s", "ha_enabled": "false", "as": "vault",
	}, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	own := b.(*Backend)
	defer own.Close(t.Context())
	cfg := own.cfg
	if cfg.Path != "/ls/foo/v" || cfg.Client.Cell != "foo" || len(cfg.Client.Servers) != 2 || cfg.Client.Lease != 20*time.Second ||
		cfg.LockDelay != 3*time.Second || !cfg.DisableHA || cfg.Client.As != "vault" || cfg.Client.Logger == nil {
		t.Errorf("%+v", cfg)
	}
	b, err = NewBackend(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	own = b.(*Backend)
	defer own.Close(t.Context())
	if own.cfg.Path != DefaultPath || !own.HAEnabled() {
		t.Errorf("%+v", own.cfg)
	}
}

func TestNewBackendRefuses(t *testing.T) {
	for _, conf := range []map[string]string{
		{"adress": "x"}, {"lease": "x"}, {"lease": "1h"}, {"lock_delay": "10h"}, {"lock_delay": "-1s"}, {"ha_enabled": "perhaps"}, {"path": "vault"}, {"path": "/ls/local"},
	} {
		if b, err := NewBackend(conf, nil); b != nil || !errors.Is(err, api.InvalidArgument) && !errors.Is(err, api.InvalidPath) {
			t.Errorf("%v: %v, %v", conf, b, err)
		}
	}
}
