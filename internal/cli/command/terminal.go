package command

import (
	"io"
	"os"

	"golang.org/x/term"
)

func IsTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
