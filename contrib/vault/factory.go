package chubbyvault

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/vault/sdk/physical"
)

// DefaultPath is the directory of a backend whose configuration names none.
const DefaultPath = "/ls/local/vault"

// NewBackend is New with the keys of a storage stanza of Vault's configuration: a physical.Factory. The
// keys are path, servers (addresses with commas between), cell, lease, lock_delay (durations, as in "12s"),
// ha_enabled ("false" for one node only), as, tls_ca_file, tls_cert_file, tls_key_file and token_file; see
// Config and client.Config. Another key is InvalidArgument, as is a value that cannot be read. Fail-overs,
// jeopardy and lost locks are logged to logger, unless it is nil.
func NewBackend(conf map[string]string, logger hclog.Logger) (physical.Backend, error) {
	cfg := Config{Path: cmp.Or(conf["path"], DefaultPath)}
	var faults []error
	duration := func(key, text string) (d time.Duration) {
		d, err := time.ParseDuration(text)
		if err != nil {
			faults = append(faults, api.Errorf(api.InvalidArgument, "%s is %q; want a duration, as in 12s", key, text))
		}
		return d
	}
	for key, text := range conf {
		switch key {
		case "path":
		case "servers":
			cfg.Client.Servers = strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
		case "cell":
			cfg.Client.Cell = text
		case "as":
			cfg.Client.As = text
		case "lease":
			cfg.Client.Lease = duration(key, text)
		case "lock_delay":
			cfg.LockDelay = duration(key, text)
		case "ha_enabled":
			enabled, err := strconv.ParseBool(text)
			if err != nil {
				faults = append(faults, api.Errorf(api.InvalidArgument, "ha_enabled is %q; want true or false", text))
			}
			cfg.DisableHA = !enabled
		case "tls_ca_file":
			cfg.Client.TLS.CA = text
		case "tls_cert_file":
			cfg.Client.TLS.Cert = text
		case "tls_key_file":
			cfg.Client.TLS.Key = text
		case "token_file":
			cfg.Client.Credentials = client.TokenFile(text)
		default:
			faults = append(faults, api.Errorf(api.InvalidArgument, "there is no key %q; see the documentation of package chubbyvault", key))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	if logger != nil {
		cfg.Client.Logger = slog.New(slog.NewTextHandler(logger.StandardWriter(&hclog.StandardLoggerOptions{ForceLevel: hclog.Warn}), nil))
	}
	b, err := New(context.Background(), cfg)
	if err != nil {
		return nil, err
	}
	return b, nil
}

var _ physical.Factory = NewBackend
