package main

import (
	"encoding/json"
	"os"
	"os/user"
	"path/filepath"
	"slices"

	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/flock"
)

type devCell struct {
	Replicas []devReplica `json:"replicas"`
	TLS      struct {
		CA   string `json:"cacert"`
		Cert string `json:"cert"`
		Key  string `json:"key"`
	} `json:"tls"`
}

type devReplica struct {
	Client string `json:"client"`
}

// readDevCell reads dev.json of a directory, and reports whether a dev cell runs there.
func readDevCell(dir string) (devCell, bool) {
	var dev devCell
	text, err := os.ReadFile(filepath.Join(dir, "dev.json"))
	if err != nil || json.Unmarshal(text, &dev) != nil {
		return devCell{}, false // not running here
	}
	return dev, true
}

func (d devCell) tlsFiles() client.TLSFiles {
	return client.TLSFiles{CA: d.TLS.CA, Cert: d.TLS.Cert, Key: d.TLS.Key}
}

func (d devCell) servesAll(addresses []string) bool {
	for _, address := range addresses {
		if !slices.Contains(d.Replicas, devReplica{address}) {
			return false
		}
	}
	return true
}

// principal returns the principal to act as: --as; or, in a cell of 'chubbyd dev' in this directory without
// authentication, the user of this machine, so that people see who holds locks. Any other cell would reject
// such a claim.
func (g *globals) principal(cell string) string {
	if g.as != "" || g.tlsFiles(cell) != (client.TLSFiles{}) || g.tokenFile != "" || slices.Contains(client.ConfiguredCells(), cell) {
		return g.as
	}
	dir := filepath.Join(".chubby", cell)
	dev, runs := readDevCell(dir)
	if !runs || !dev.servesAll(g.servers) || !isLocked(filepath.Join(dir, "lock")) {
		return ""
	}
	own, err := user.Current()
	if err != nil || !isPrincipal(own.Username) {
		return ""
	}
	return own.Username
}

// isPrincipal reports whether a name can stand for itself in an access control list.
func isPrincipal(name string) bool {
	return name != "" && name != "*" && name[0] != '@' && name[0] != '#' && entryProblem(name) == ""
}

// isLocked reports whether a process has locked a file: a killed dev leaves its files.
func isLocked(name string) bool {
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // only read
	return flock.IsLocked(f)
}

// tlsFiles returns the certificates for a cell: from the flags; or, for a cell without configuration, those of
// 'chubbyd dev --tls' in this directory. For the others the client uses the variables and the file of cells.
func (g *globals) tlsFiles(cell string) client.TLSFiles {
	variables := os.Getenv("CHUBBY_CACERT") + os.Getenv("CHUBBY_CERT") + os.Getenv("CHUBBY_TOKEN_FILE")
	if g.tls != (client.TLSFiles{}) || g.tokenFile != "" || variables != "" || slices.Contains(client.ConfiguredCells(), cell) {
		return g.tls
	}
	dev, _ := readDevCell(filepath.Join(".chubby", cell))
	return dev.tlsFiles()
}
