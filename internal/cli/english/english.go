// Package english keeps agents and servers from loading the translations of kubectl's texts, which they never show. The
// packages of kubectl would have them all at the start of every process, over a megabyte for as long as it runs. This
// one is imported for its initialization, which comes before theirs: Go initializes what is ready in the order of the
// paths.
package english

import (
	"fmt"
	"os"
	"slices"

	"k8s.io/kubectl/pkg/util/i18n"
)

func init() {
	if len(os.Args) < 2 || !slices.Contains([]string{"agent", "server"}, os.Args[1]) {
		return
	}
	if err := i18n.SetLoadTranslationsFunc(func() error { return nil }); err != nil {
		panic(fmt.Sprintf("leave out kubectl's translations: %v", err))
	}
}
