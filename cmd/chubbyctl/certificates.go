package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"

	"github.com/chubbylock/chubby/client"
)

// tlsFiles returns the certificates for a cell: those that the flags name; or, of a cell that is configured nowhere, those
// that 'chubbyd dev --tls' has made in this directory. The client looks for what is not named, by the
// variables and the file of cells.
func (g *globals) tlsFiles(cell string) client.TLSFiles {
	variables := os.Getenv("CHUBBY_CACERT") + os.Getenv("CHUBBY_CERT") + os.Getenv("CHUBBY_TOKEN_FILE")
	if g.tls != (client.TLSFiles{}) || g.tokenFile != "" || variables != "" || slices.Contains(client.ConfiguredCells(), cell) {
		return g.tls
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
