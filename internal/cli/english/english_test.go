package english_test

import (
	"os"
	"os/exec"
	"testing"

	_ "k8s.io/kubectl/pkg/cmd/options" // asks for a text when it is initialized
	"k8s.io/kubectl/pkg/util/i18n"

	_ "github.com/everynode/everynode/internal/cli/english"
)

// An agent has kubectl's texts as they are in its source, and everybody else what the language's translation says.
func TestTranslations(t *testing.T) {
	const variable, message = "EVERYNODE_TEST_TRANSLATES", "Approve a certificate signing request"
	if os.Getenv(variable) != "" {
		_, _ = os.Stdout.WriteString(i18n.T(message))
		os.Exit(0)
	}
	say := func(verb string) string {
		cmd := exec.Command(os.Args[0], verb)
		cmd.Env = append(os.Environ(), variable+"=yes", "LC_ALL=de_DE.UTF-8")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	for _, verb := range []string{"agent", "server"} {
		if got := say(verb); got != message {
			t.Errorf("%s says %q", verb, got)
		}
	}
	if got := say("kubectl"); got == message || got == "" {
		t.Errorf("kubectl says %q in German", got)
	}
}
