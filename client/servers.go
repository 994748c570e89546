package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/chubbylock/chubby/api"
	"go.yaml.in/yaml/v3"
)

// Servers returns the client addresses (host:port) of a cell's replicas, from the first of these that names
// the cell:
//
//  1. the variable CHUBBY_CELLS, "foo=h1:7421,h2:7421;bar=h3:7421";
//
//  2. the file $CHUBBY_CONFIG, else ~/.config/chubby/cells.yaml, which maps the name of a cell to its
//     servers:
//
//     foo: {servers: [h1:7421, h2:7421]}
//
//  3. the DNS SRV records of _chubby._tcp.<cell>.$CHUBBY_DOMAIN, if that variable is set;
//
//  4. for other cells, the ports 7421 to 7425 of this host, where "chubbyd dev" serves.
//
// An entry of the file may name certificates too (cacert, cert and key, relative to the file); see
// Config.TLS.
//
// A missing port is 7421. The error is InvalidArgument for a malformed source or an unreadable file, and
// Unavailable if the name service does not answer.
func Servers(ctx context.Context, cell string) ([]string, error) {
	return processSources().servers(ctx, cell)
}

func processSources() sources {
	return sources{getenv: os.Getenv, readFile: os.ReadFile, configDir: userConfigDir, lookupSRV: net.DefaultResolver.LookupSRV}
}

// ConfiguredCells returns the names of the cells in CHUBBY_CELLS and the file of cells, sorted. It ignores an
// unreadable source; Servers says what is wrong with it.
func ConfiguredCells() []string {
	return processSources().configuredCells()
}

// devReplicas is how many ports of this host are tried for an unconfigured cell.
const devReplicas = 5

// maxCellsFile limits the file of cells, in bytes: thousands of cells.
const maxCellsFile = 1 << 20

// userConfigDir is ~/.config on every system, so that the same instructions apply.
func userConfigDir() (string, error) {
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".config"), err
}

type sources struct {
	getenv    func(string) string
	readFile  func(string) ([]byte, error)
	configDir func() (string, error)
	lookupSRV func(ctx context.Context, service, proto, name string) (string, []*net.SRV, error)
}

func (s sources) servers(ctx context.Context, cell string) ([]string, error) {
	if list, err := parseCells(s.getenv("CHUBBY_CELLS"), cell); err != nil || len(list) > 0 {
		return list, err
	}
	if list, err := s.fromFile(cell); err != nil || len(list) > 0 {
		return list, err
	}
	if list, err := s.fromDNS(ctx, cell); err != nil || len(list) > 0 {
		return list, err
	}
	var list []string
	for i := range devReplicas {
		list = append(list, net.JoinHostPort("127.0.0.1", strconv.Itoa(api.DefaultClientPort+i)))
	}
	return list, nil
}

func (s sources) configuredCells() []string {
	var names []string
	for entry := range strings.SplitSeq(s.getenv("CHUBBY_CELLS"), ";") {
		if name, _, ok := strings.Cut(entry, "="); ok {
			names = append(names, strings.TrimSpace(name))
		}
	}
	if path, _ := s.cellsFile(); path != "" {
		if text, err := s.readFile(path); err == nil && len(text) <= maxCellsFile {
			var cells map[string]any
			if yaml.Unmarshal(text, &cells) == nil {
				names = slices.AppendSeq(names, maps.Keys(cells))
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// cellsFile returns the path of the file of cells, or "". named: CHUBBY_CONFIG names it.
func (s sources) cellsFile() (path string, named bool) {
	if path = s.getenv("CHUBBY_CONFIG"); path != "" {
		return path, true
	}
	dir, err := s.configDir()
	if err != nil {
		return "", false // a user without a home directory has no such file
	}
	return filepath.Join(dir, "chubby", "cells.yaml"), false
}

// parseCells reads CHUBBY_CELLS and returns the servers of one cell. It reports a fault in any entry: a
// typing error must not send a client to a cell of the same name on this host.
func parseCells(value, cell string) ([]string, error) {
	var found []string
	for entry := range strings.SplitSeq(value, ";") {
		if strings.TrimSpace(entry) == "" {
			continue
		}
		name, list, ok := strings.Cut(entry, "=")
		name = strings.TrimSpace(name)
		if !ok || !api.ValidCell(name) {
			return nil, api.Errorf(api.InvalidArgument, `CHUBBY_CELLS: %q is not cell=host:port,...; want "foo=h1:7421,h2:7421;bar=h3:7421"`, entry)
		}
		servers, err := withPorts(strings.Split(list, ","))
		if err != nil {
			return nil, fmt.Errorf("CHUBBY_CELLS, cell %s: %w", name, err)
		}
		if name == cell {
			found = append(found, servers...)
		}
	}
	return found, nil
}

type cellEntry struct {
	Servers []string `yaml:"servers"`
	CA      string   `yaml:"cacert"`
	Cert    string   `yaml:"cert"`
	Key     string   `yaml:"key"`
	Token   string   `yaml:"token-file"`
}

// fileEntry returns the entry of a cell in the file of cells, if there is one, and the directory of the file.
func (s sources) fileEntry(cell string) (entry cellEntry, ok bool, dir string, err error) {
	path, named := s.cellsFile()
	if path == "" {
		return cellEntry{}, false, "", nil
	}
	bad := func(message string, err error) error {
		return &api.Error{Code: api.InvalidArgument, Op: "read cells", Path: path, Message: message, Err: err}
	}
	text, err := s.readFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !named:
		return cellEntry{}, false, "", nil
	case err != nil && named:
		return cellEntry{}, false, "", bad("the file of cells "+path+" cannot be read; CHUBBY_CONFIG names it", err)
	case err != nil:
		return cellEntry{}, false, "", bad("the file of cells "+path+" cannot be read", err)
	}
	if entry, ok, err = parseFile(text, cell); err != nil {
		err = bad(`the file of cells is malformed; want "foo: {servers: [h1:7421, h2:7421]}"`, err)
	}
	return entry, ok, filepath.Dir(path), err
}

func (s sources) fromFile(cell string) ([]string, error) {
	entry, ok, _, err := s.fileEntry(cell)
	if err != nil {
		return nil, err
	}
	if ok && len(entry.Servers) == 0 {
		path, _ := s.cellsFile()
		return nil, &api.Error{Code: api.InvalidArgument, Op: "read cells", Path: path, Message: fmt.Sprintf("cell %s has no servers", cell)}
	}
	return entry.Servers, nil
}

// parseFile reads the file of cells, strictly: an unknown key is a fault.
func parseFile(text []byte, cell string) (cellEntry, bool, error) {
	if len(text) > maxCellsFile {
		return cellEntry{}, false, fmt.Errorf("%d bytes; at most %d are allowed", len(text), maxCellsFile)
	}
	cells := map[string]cellEntry{}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&cells); err != nil && !errors.Is(err, io.EOF) {
		return cellEntry{}, false, err
	}
	for name := range cells {
		if !api.ValidCell(name) {
			return cellEntry{}, false, fmt.Errorf("%q is no cell's name", name)
		}
	}
	entry, ok := cells[cell]
	err := entry.checkComplete(cell)
	if err == nil {
		entry.Servers, err = withPorts(entry.Servers)
	}
	return entry, ok, err
}

func (s sources) fromDNS(ctx context.Context, cell string) ([]string, error) {
	domain := s.getenv("CHUBBY_DOMAIN")
	if domain == "" {
		return nil, nil
	}
	_, records, err := s.lookupSRV(ctx, "chubby", "tcp", cell+"."+domain)
	var dns *net.DNSError
	if errors.As(err, &dns) && dns.IsNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, &api.Error{Code: api.Unavailable, Op: "look up", Path: "_chubby._tcp." + cell + "." + domain,
			Message: "the name service does not answer", Err: err}
	}
	var list []string
	for _, r := range records {
		host := strings.TrimSuffix(r.Target, ".")
		if host == "" { // RFC 2782: the target "." means no such service
			continue
		}
		list = append(list, net.JoinHostPort(host, strconv.Itoa(int(r.Port))))
	}
	if len(list) == 0 && len(records) > 0 {
		return nil, &api.Error{Code: api.Unavailable, Op: "look up", Path: "_chubby._tcp." + cell + "." + domain,
			Message: `the name service says that the cell has no servers (the target of its SRV record is "."); correct the record, or CHUBBY_DOMAIN`}
	}
	return withPorts(list)
}

func withPorts(servers []string) ([]string, error) {
	var list []string
	for _, server := range servers {
		address, err := withPort(server)
		if err != nil {
			return nil, err
		}
		list = append(list, address)
	}
	return list, nil
}

func withPort(server string) (string, error) {
	server = strings.TrimSpace(server)
	host, port, err := net.SplitHostPort(server)
	if err != nil { // "host", "::1" or "[::1]": no port
		host, port = strings.TrimSuffix(strings.TrimPrefix(server, "["), "]"), strconv.Itoa(api.DefaultClientPort)
		if strings.Contains(host, ":") && net.ParseIP(host) == nil {
			host = ""
		}
	}
	if n, err := strconv.ParseUint(port, 10, 16); host == "" || strings.ContainsAny(host, " \t/[]") || err != nil || n == 0 {
		return "", api.Errorf(api.InvalidArgument, "%q is not the address of a server; want host:port", server)
	}
	return net.JoinHostPort(host, port), nil
}

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
	entry, _, dir, err := s.fileEntry(cell)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // servers reports one that is absent
		return identity{}, err
	}
	return named.or(entry.identity(dir)), nil
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
