// Package examples holds the manifests that the guides use, so that the binary
// can put them beside a cluster that it starts.
package examples

import "embed"

// Files has the manifests by file name.
//
//go:embed *.yaml
var Files embed.FS
