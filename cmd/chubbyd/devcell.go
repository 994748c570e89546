package main

import (
	"encoding/json"
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
	"syscall"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/internal/certs"
	"go.yaml.in/yaml/v3"
)

// portsApart is the distance of a replica's client, raft and http ports, and so the maximum of replicas on one
// host.
const portsApart = api.DefaultRaftPort - api.DefaultClientPort

// devCell is a cell on this machine, for dev.json.
type devCell struct {
	Cell     string       `json:"cell"`
	Replicas []devReplica `json:"replicas"`
	TLS      *devTLS      `json:"tls,omitempty"` // for clients, with --tls

	dir string
	tls bool // with certificates
}

type devReplica struct {
	ID     string `json:"id"`
	PID    int    `json:"pid"`
	Client string `json:"client"`
	Raft   string `json:"raft"`
	HTTP   string `json:"http"`

	dir string // of the cell
}

func newDevCell(name, dir string, replicas, basePort int) *devCell {
	c := &devCell{Cell: name, dir: dir}
	address := func(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
	for i := range replicas {
		c.Replicas = append(c.Replicas, devReplica{
			ID:     fmt.Sprintf("r%d", i+1),
			Client: address(basePort + i),
			Raft:   address(basePort + portsApart + i),
			HTTP:   address(basePort + 2*portsApart + i),
			dir:    dir,
		})
	}
	return c
}

func (r *devReplica) configFile() string { return filepath.Join(r.dir, r.ID+".yaml") }
func (r *devReplica) dataDir() string    { return filepath.Join(r.dir, r.ID, "data") }
func (r *devReplica) logFile() string    { return filepath.Join(r.dir, r.ID, "log") }

func (c *devCell) logFiles() string { return filepath.Join(c.dir, "*", "log") }

func (c *devCell) replicaOf(id string) *devReplica {
	i := slices.IndexFunc(c.Replicas, func(r devReplica) bool { return r.ID == id })
	return &c.Replicas[i]
}

// lockDir locks the directory, and checks that every port is free, so that the cell does not start in part.
func (c *devCell) lockDir() (unlock func(), err error) {
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return nil, fmt.Errorf("create the data directory: %w; choose another with --data", err)
	}
	unlock, err = lockFile(filepath.Join(c.dir, "lock"))
	if err != nil {
		return nil, fmt.Errorf("the directory %s is in use by another 'chubbyd dev' (%w); stop that one, or choose another with --data", c.dir, err)
	}
	if err := errors.Join(c.checkMembers(), c.checkPorts()); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// checkMembers refuses to run a cell with other replicas or addresses than at its beginning: its Raft log has
// those, and the replicas would not find each other.
func (c *devCell) checkMembers() error {
	const advice = "give the same --cell, --replicas and --base-port again, choose another --data, or remove the directory to begin anew"
	for _, r := range c.Replicas {
		d := newDraft(r.configFile())
		err := d.readFile(r.configFile())
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err = errors.Join(err, errorOf(d.problems)); err != nil {
			return fmt.Errorf("%s: %w; remove the file if you did not write it", r.configFile(), err)
		}
		was, first := d.replica, "nowhere"
		if was.Cell == c.Cell && was.ID == r.ID && slices.Equal(was.Members, c.members()) {
			continue
		}
		if len(was.Members) > 0 {
			first = was.Members[0].Client
		}
		return fmt.Errorf("%s holds cell %s with %d replicas from %s on, not cell %s with %d from %s on; %s",
			c.dir, was.Cell, len(was.Members), first, c.Cell, len(c.Replicas), c.Replicas[0].Client, advice)
	}
	return nil
}

func (c *devCell) checkPorts() error {
	var taken []string
	for _, r := range c.Replicas {
		for _, address := range []string{r.Client, r.Raft, r.HTTP} {
			listener, err := net.Listen("tcp", address)
			switch {
			case errors.Is(err, syscall.EADDRINUSE):
				taken = append(taken, address)
			case err != nil:
				return fmt.Errorf("listen on %s: %w; choose other ports with --base-port", address, err)
			default:
				if err := listener.Close(); err != nil {
					return fmt.Errorf("listen on %s: %w", address, err)
				}
			}
		}
	}
	if len(taken) > 0 {
		return fmt.Errorf("in use by another program (perhaps another cell): %s; stop it, or choose other ports with --base-port, as in --base-port 8421",
			strings.Join(taken, ", "))
	}
	return nil
}

// devDiskStall is long, because all replicas of dev share a disk: if one ended for it, the others would wait
// for the same disk.
const devDiskStall = "1m"

func (c *devCell) members() (list []cell.Member) {
	for _, r := range c.Replicas {
		list = append(list, cell.Member{ID: r.ID, Client: r.Client, Raft: r.Raft, HTTP: r.HTTP})
	}
	return list
}

// config returns the keys of a replica's configuration.
func (c *devCell) config(r *devReplica) map[string]any {
	var members []map[string]string
	for _, m := range c.members() {
		members = append(members, map[string]string{"id": m.ID, "client": m.Client, "raft": m.Raft, "http": m.HTTP})
	}
	lines := map[string]any{
		"cell": c.Cell, "id": r.ID, "members": members, "data": r.dataDir(),
		"bootstrap": true, "console": true, "insecure": !c.tls, "insecure-principals": !c.tls, "disk-stall": devDiskStall,
	}
	if c.tls {
		maps.Copy(lines, c.certificatesOf(r.ID))
	}
	return lines
}

func (c *devCell) writeConfigs() error {
	for i := range c.Replicas {
		r := &c.Replicas[i]
		text, err := yaml.Marshal(c.config(r))
		if err != nil {
			return fmt.Errorf("write %s: %w", r.configFile(), err)
		}
		header := "# Written by 'chubbyd dev' at every start.\n"
		if err := replaceFile(r.configFile(), append([]byte(header), text...)); err != nil {
			return err
		}
		if err := os.MkdirAll(r.dataDir(), 0o755); err != nil {
			return fmt.Errorf("create the directory of replica %s: %w", r.ID, err)
		}
	}
	return nil
}

func (c *devCell) jsonFile() string { return filepath.Join(c.dir, "dev.json") }

func (c *devCell) writeJSON() error {
	text, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("write %s: %w", c.jsonFile(), err)
	}
	return replaceFile(c.jsonFile(), append(text, '\n'))
}

// removeJSON removes dev.json after its processes have ended: others may get their numbers, and must not be
// killed.
func (c *devCell) removeJSON() error {
	if err := os.Remove(c.jsonFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", c.jsonFile(), err)
	}
	return nil
}

// replaceFile replaces a file's contents. A reader finds the old ones or the new ones.
func replaceFile(name string, contents []byte) error { return replaceWith(name, contents, 0o644) }

// replaceSecret is replaceFile for contents that only the owner may read.
func replaceSecret(name string, contents []byte) error { return replaceWith(name, contents, 0o600) }

func replaceWith(name string, contents []byte, mode os.FileMode) error {
	next := name + ".new"
	err := os.WriteFile(next, contents, mode)
	if err == nil {
		err = os.Chmod(next, mode) // it may have existed
	}
	if err == nil {
		err = os.Rename(next, name)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// firstSteps returns commands to try on the cell, which work as printed.
func (c *devCell) firstSteps() string {
	ctl := chubbyctl() + c.clientFlags()
	path := "/" + api.Root + "/" + c.Cell
	scheme, export, argument := "http", "", ""
	if c.tls {
		scheme = "https"
	}
	if c.Cell != api.LocalCell {
		argument = " " + c.Cell
	}
	if first := net.JoinHostPort("127.0.0.1", strconv.Itoa(api.DefaultClientPort)); c.Replicas[0].Client != first {
		var clients []string
		for _, r := range c.Replicas {
			clients = append(clients, r.Client)
		}
		export = "  export CHUBBY_CELLS='" + c.Cell + "=" + strings.Join(clients, ",") + "'\n"
	}
	_, port, _ := net.SplitHostPort(c.Replicas[0].HTTP)
	return "The console, for a browser: " + scheme + "://localhost:" + port + "/\n" +
		"Try, in a second terminal:\n" + export +
		"  " + ctl + " cell status" + argument + "\n" +
		"  " + ctl + " acquire " + path + "/demo --reason 'a first try' -- sleep 60\n" +
		"  " + ctl + " locks " + path
}

// chubbyctl returns how the user runs the client: by its path if it is in this program's directory.
func chubbyctl() string {
	program, err := os.Executable()
	if err != nil {
		return "chubbyctl"
	}
	sibling := filepath.Join(filepath.Dir(program), "chubbyctl")
	if _, err := os.Stat(sibling); err != nil {
		return "chubbyctl"
	}
	if here, err := os.Getwd(); err == nil {
		if relative, err := filepath.Rel(here, sibling); err == nil && filepath.IsLocal(relative) {
			sibling = "." + string(filepath.Separator) + relative
		}
	}
	if strings.ContainsAny(sibling, " \t'\"\\$&;()<>|*?[]#~`!") {
		return "'" + strings.ReplaceAll(sibling, "'", `'\''`) + "'"
	}
	return sibling
}

// devPrincipal is the principal of dev's client certificate.
const devPrincipal = "dev"

func (c *devCell) certificates() *certsOptions {
	return &certsOptions{dir: filepath.Join(c.dir, "tls"), days: leafDays}
}

// certificatesOf returns the keys of a replica's certificates.
func (c *devCell) certificatesOf(id string) map[string]any {
	o := c.certificates()
	return map[string]any{
		"tls-cert": o.file("server-"+id, "crt"), "tls-key": o.file("server-"+id, "key"), "tls-ca": o.file(clientAuthority, "crt"),
		"peer-tls-cert": o.file("replica-"+id, "crt"), "peer-tls-key": o.file("replica-"+id, "key"), "peer-tls-ca": o.file(replicaAuthority, "crt"),
		"token-keys": filepath.Join(o.dir, tokenKeys), "token-issuer": tokenIssuer, "token-audience": tokenAudience,
		"operators": devPrincipal,
	}
}

// makeCertificates makes missing certificates, with --tls.
func (c *devCell) makeCertificates() error {
	if !c.tls {
		return nil
	}
	o := c.certificates()
	if err := o.unlessThere(clientAuthority, func() error { return (&certsOptions{dir: o.dir, days: authorityDays}).makeAuthorities(io.Discard) }); err != nil {
		return err
	}
	for _, r := range c.Replicas {
		of := certs.Replica{Cell: c.Cell, ID: r.ID}
		if err := o.unlessThere("server-"+r.ID, func() error { return o.makeServer(io.Discard, of, []string{"127.0.0.1", "localhost"}) }); err != nil {
			return err
		}
	}
	if _, err := o.issuer(); err != nil {
		return fmt.Errorf("make the issuer of tokens: %w", err)
	}
	return o.unlessThere("client-"+devPrincipal, func() error { return o.makeClient(io.Discard, devPrincipal) })
}

// unlessThere makes a certificate unless it exists.
func (o *certsOptions) unlessThere(name string, create func() error) error {
	_, err := os.Stat(o.file(name, "crt"))
	if errors.Is(err, fs.ErrNotExist) {
		return create()
	}
	return err
}

type devTLS struct {
	CA   string `json:"cacert"`
	Cert string `json:"cert"`
	Key  string `json:"key"`
}

func (c *devCell) forClients() *devTLS {
	if !c.tls {
		return nil
	}
	o := c.certificates()
	return &devTLS{CA: o.file(clientAuthority, "crt"), Cert: o.file("client-"+devPrincipal, "crt"), Key: o.file("client-"+devPrincipal, "key")}
}

// clientFlags returns chubbyctl's flags for the certificates, if it does not find them itself.
func (c *devCell) clientFlags() string {
	files := c.forClients()
	if files == nil || filepath.Clean(c.dir) == filepath.Join(".chubby", c.Cell) {
		return ""
	}
	return fmt.Sprintf(" --cacert %s --cert %s --key %s", files.CA, files.Cert, files.Key)
}

// whoIsAsked says whether clients have to authenticate.
func (c *devCell) whoIsAsked() string {
	if c.tls {
		return "clients have to prove who they are; certificates are in " + c.certificates().dir + ", that of " + devPrincipal + " among them"
	}
	return "no client is asked to prove who it is here: anybody on this machine may act as anybody (insecure-principals)"
}
