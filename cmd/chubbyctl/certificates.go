package main

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"

	"github.com/chubbylock/chubby/client"
)

// tlsFiles returns the certificates for a cell: those that the flags name, and the variables for the rest; or, of a
// cell that is configured nowhere, those that 'chubbyd dev --tls' has made in this directory. If there are
// none, the client looks for them, by the variables and the file of cells.
func (g *globals) tlsFiles(cell string) client.TLSFiles {
	named := client.TLSFiles{CA: os.Getenv("CHUBBY_CACERT"), Cert: os.Getenv("CHUBBY_CERT"), Key: os.Getenv("CHUBBY_KEY")}
	switch {
	case g.tls != client.TLSFiles{}:
		return client.TLSFiles{CA: cmp.Or(g.tls.CA, named.CA), Cert: cmp.Or(g.tls.Cert, named.Cert), Key: cmp.Or(g.tls.Key, named.Key)}
	case named != client.TLSFiles{}, slices.Contains(client.ConfiguredCells(), cell):
		return client.TLSFiles{}
	}
	return devTLS(filepath.Join(".chubby", cell))
}

// devTLS reads what dev says of its certificates in its directory.
func devTLS(dir string) client.TLSFiles {
	text, err := os.ReadFile(filepath.Join(dir, "dev.json"))
	if err != nil {
		return client.TLSFiles{} // it does not run here
	}
	var dev struct {
		TLS struct {
			CA   string `json:"cacert"`
			Cert string `json:"cert"`
			Key  string `json:"key"`
		} `json:"tls"`
	}
	if json.Unmarshal(text, &dev) != nil {
		return client.TLSFiles{}
	}
	return client.TLSFiles{CA: dev.TLS.CA, Cert: dev.TLS.Cert, Key: dev.TLS.Key}
}
