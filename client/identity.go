package client

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/chubbylock/chubby/api"
)

// identity is how a client and the replicas know each other: files of certificates, and a token file in place
// of the client's own.
type identity struct {
	TLSFiles
	token string
}

// identity returns what CHUBBY_CACERT, CHUBBY_CERT, CHUBBY_KEY and CHUBBY_TOKEN_FILE name for a cell,
// otherwise its entry in the file of cells.
func (s sources) identity(cell string) (identity, error) {
	named := identity{
		TLSFiles: TLSFiles{CA: s.getenv("CHUBBY_CACERT"), Cert: s.getenv("CHUBBY_CERT"), Key: s.getenv("CHUBBY_KEY")},
		token:    s.getenv("CHUBBY_TOKEN_FILE"),
	}
	path, byVariable := s.cellsFile()
	if path == "" {
		return named, nil
	}
	text, err := s.readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return named, nil // if CHUBBY_CONFIG names it, servers says so
	}
	if err != nil {
		return identity{}, unreadableCells(path, byVariable, err)
	}
	entry, _, err := parseFile(text, cell)
	if err != nil {
		return identity{}, malformedCells(path, err)
	}
	return named.or(entry.identity(filepath.Dir(path))), nil
}

// or returns i, completed from another. The client's identity comes from one of them alone.
func (i identity) or(other identity) identity {
	if i.Cert == "" && i.Key == "" && i.token == "" {
		i.Cert, i.Key, i.token = other.Cert, other.Key, other.token
	}
	i.CA, i.CRL = cmp.Or(i.CA, other.CA), cmp.Or(i.CRL, other.CRL)
	return i
}

func (i identity) check() error {
	switch {
	case i.CA == "":
		return api.Errorf(api.InvalidArgument, "the certificates name no CA: who has signed those of the servers? (Config.TLS.CA, --cacert, CHUBBY_CACERT)")
	case (i.Cert == "") != (i.Key == ""):
		return api.Errorf(api.InvalidArgument, "a certificate and its key are needed together (Config.TLS, --cert and --key, CHUBBY_CERT and CHUBBY_KEY)")
	case i.Cert != "" && i.token != "":
		return api.Errorf(api.InvalidArgument, "there is a certificate, and a token, too: a client shows either (Config.TLS.Cert and Config.Credentials, --cert and --token-file)")
	}
	return nil
}

// identity returns an entry's files. Names are relative to the directory of the file of cells.
func (e cellEntry) identity(dir string) identity {
	in := func(name string) string {
		if name == "" || filepath.IsAbs(name) {
			return name
		}
		return filepath.Join(dir, name)
	}
	return identity{TLSFiles: TLSFiles{CA: in(e.CA), Cert: in(e.Cert), Key: in(e.Key)}, token: in(e.Token)}
}

func (e cellEntry) checkComplete(cell string) error {
	switch known := e.Cert != "" || e.Token != ""; {
	case (e.Cert == "") != (e.Key == ""), known != (e.CA != ""):
		return fmt.Errorf("cell %s: cacert, and cert with key or else token-file, are needed together", cell)
	case e.Cert != "" && e.Token != "":
		return fmt.Errorf("cell %s: either cert or token-file can say who the client is", cell)
	}
	return nil
}
