package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// runCommand says how a command line ends; no command line of these tests gets further than
// its flags.
func runCommand(t *testing.T, args ...string) (code int, said string) {
	t.Helper()
	var out, errOut bytes.Buffer
	code = Execute(t.Context(), args, &out, &errOut)
	return code, errOut.String()
}

// A flag of kube-apiserver that sets nothing here says why in one line, and what to do.
func TestForeignFlagsSayWhy(t *testing.T) {
	for _, cmd := range []*cobra.Command{newServerCommand(), newUpCommand()} {
		for name, flag := range foreignFlags {
			err := refusal(cmd.ParseFlags([]string{"--" + name + "=nonsense"}))
			if err == nil || err.Error() != "--"+name+"=nonsense: "+flag.why || strings.Contains(flag.why, "\n") {
				t.Errorf("%s --%s: %v", cmd.Name(), name, err)
			}
			if len(flag.why) < 30 || strings.HasSuffix(flag.why, ".") {
				t.Errorf("--%s: %q is no sentence that helps", name, flag.why)
			}
		}
	}
	if code, said := runCommand(t, "server", "--token-auth-file=x"); code != 1 || !strings.HasPrefix(said, "everynode: --token-auth-file=x: tokens in files never end") || strings.Count(said, "\n") != 1 {
		t.Errorf("a flag of kube-apiserver: %d, %q", code, said)
	}
	if _, said := runCommand(t, "server", "--nonsense"); !strings.Contains(said, "unknown flag") {
		t.Errorf("a flag that nobody has: %q", said)
	}
	if _, said := runCommand(t, "server", "--anonymous-auth=perhaps"); !strings.Contains(said, "give true or false") {
		t.Errorf("neither true nor false: %q", said)
	}
}

// What is so in any case may be said.
func TestWhatIsSoAnywayMayBeSaid(t *testing.T) {
	for name, flag := range foreignFlags {
		if flag.always == "" {
			continue
		}
		cmd := newServerCommand()
		if err := cmd.ParseFlags([]string{"--" + name + "=" + flag.always}); err != nil {
			t.Errorf("--%s=%s: %v", name, flag.always, err)
		}
		if err := cmd.ParseFlags([]string{"--" + name + "=other"}); err == nil {
			t.Errorf("--%s=other is taken", name)
		}
	}
	for args, taken := range map[string]bool{
		"--authorization-mode=RBAC,Node": true, "--authorization-mode=RBAC": false, "--authorization-mode=AlwaysAllow": false,
		"--authorization-mode=Node,RBAC,Webhook": false, "--watch-cache": true, "--allow-privileged": true, "--enable-aggregator-routing=false": false,
	} {
		if err := newServerCommand().ParseFlags([]string{args}); (err == nil) != taken {
			t.Errorf("%s: %v, want taken %v", args, err, taken)
		}
	}
}

// What "up" was given reaches the server as it was meant.
func TestFlagsAreHandedOn(t *testing.T) {
	up, typed := newUpCommand(), []string{
		"--service-account-issuer=https://a.example", "--service-account-issuer=https://b.example", "--anonymous-auth=false",
		"--oidc-required-claim=a=b,c=d", "--runtime-config=apps/v1=true,api/ga=true", "--api-audiences=x,y", "--event-ttl=2h",
	}
	if err := up.ParseFlags(typed); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, arg := range typed {
		names = append(names, strings.TrimPrefix(strings.SplitN(arg, "=", 2)[0], "--"))
	}
	names = slices.Compact(names)
	server := newServerCommand()
	if err := server.ParseFlags(given(up, names)); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if a, b := up.Flags().Lookup(name).Value.String(), server.Flags().Lookup(name).Value.String(); a != b {
			t.Errorf("--%s was %s and is %s", name, a, b)
		}
	}
}
