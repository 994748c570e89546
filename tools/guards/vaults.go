package main

// vaultSafeguards cover the adapter to Vault.
func vaultSafeguards() []safeguard {
	const pkg = "./contrib/vault"
	return []safeguard{
		{
			name: "a value is written again if the lock of its chunks was taken away", file: "contrib/vault/chunks.go",
			old: "		case err == nil && lost:\n", new: "		case err == nil && lost && false:\n",
			pkg: pkg, test: "TestBrokenChunkLock",
		},
	}
}
