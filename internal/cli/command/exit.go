package command

import (
	"fmt"
)

// ExitCode is the error of a command that has said all there is to say.
type ExitCode int

func (c ExitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }
