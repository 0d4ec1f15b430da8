// Package packaging tests the Debian package: that it installs, keeps what an
// administrator wrote, and goes without taking data along.
package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/everynode/everynode/internal/testenv/needs"
)

// life walks the package through its life, in a copy of the machine's files.
const life = `
set -e
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
cp "$2" "$1/root/everynode.deb"
exec chroot "$1/root" sh -ec '
say() { echo "== $*"; }
# What the machine itself may have.
rm -rf /var/lib/everynode /var/lib/everynode-agent /run/systemd
say install
dpkg -i /everynode.deb
say version
everynode version
say modes
stat -c "%a %n" /usr/bin/everynode /etc/default/everynode-server /etc/default/everynode-agent
say configure
echo "# mine" >> /etc/default/everynode-agent
mkdir -p /var/lib/everynode/etcd
say upgrade
dpkg -i /everynode.deb
say configuration
tail -n 1 /etc/default/everynode-agent
say remove
dpkg -r everynode
say left
ls /usr/bin/everynode /lib/systemd/system/everynode-* /etc/default/everynode-* 2>/dev/null || true
say purge
dpkg -P everynode
say kept
ls -d /etc/default/everynode-* /var/lib/everynode/* 2>/dev/null || true
'
`

func makePackage(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat("../../bin/everynode"); err != nil {
		t.Skip("bin/everynode is not built; run: make build")
	}
	cmd := exec.Command("../../hack/package.sh", "v1.2.3-rc.1", t.TempDir())
	var complaint strings.Builder
	// The go command tells there what it downloads, too.
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("make the package: %v\n%s", err, &complaint)
	}
	return strings.TrimSpace(string(out))
}

// On a machine that has built nothing yet, the go command tells what it downloads.
func TestThePackageIsAllThatIsNamed(t *testing.T) {
	real, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go command here")
	}
	dir := t.TempDir()
	talkative := "#!/bin/sh\necho 'go: downloading example.com/tool v1.0.0' >&2\nexec " + real + ` "$@"` + "\n"
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte(talkative), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	if deb := makePackage(t); filepath.Ext(deb) != ".deb" || strings.ContainsAny(deb, " \n") {
		t.Errorf("the package is said to be %q", deb)
	}
}

func TestLifeOfThePackage(t *testing.T) {
	needs.Root(t, "installing needs root")
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Skip("no dpkg here")
	}
	deb := makePackage(t)
	lives(t, life, deb, []claim{
		{"install", "systemctl enable --now everynode-agent", "a new user is told what to do next"},
		{"version", "Kubernetes API v1.", "the program runs"},
		{"modes", "755 /usr/bin/everynode\n644 /etc/default/everynode-server\n600 /etc/default/everynode-agent\n", "a join token is not for everybody"},
		{"configuration", "# mine\n", "an upgrade keeps what was configured"},
		{"left", "/etc/default/everynode-agent\n/etc/default/everynode-server\n", "only the configuration stays after a removal"},
		{"purge", "/var/lib/everynode holds the data of a cluster and is kept", "the user is told what stays"},
		{"kept", "/var/lib/everynode/etcd\n", "data goes only by its owner's hand"},
	})
}

// claim is what a section of the script's output must say; a want that ends a line is all
// that may be said.
type claim struct{ section, want, why string }

// lives plays a script with a package file on a copy of this machine's files, holds what it
// printed against the claims, and returns it by section.
func lives(t *testing.T, script, file string, claims []claim) map[string]string {
	t.Helper()
	dir := t.TempDir()
	for _, sub := range []string{"upper", "work", "root"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// In a mount namespace of its own, so that no mount outlives it.
	out, err := exec.Command("unshare", "--mount", "sh", "-c", script, "life", dir, file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	said := sections(string(out))
	for _, c := range claims {
		got := said[c.section]
		if !strings.Contains(got, c.want) || (strings.HasSuffix(c.want, "\n") && got != c.want) {
			t.Errorf("%s: got\n%swant\n%s(%s)", c.section, got, c.want, c.why)
		}
	}
	if strings.Contains(said["upgrade"], "systemctl enable") {
		t.Errorf("an upgrade tells what only a new user needs:\n%s", said["upgrade"])
	}
	return said
}

// sections splits what the script printed at its headings.
func sections(out string) map[string]string {
	said := map[string]string{}
	name := ""
	for line := range strings.Lines(out) {
		if heading, ok := strings.CutPrefix(line, "== "); ok {
			name = strings.TrimSpace(heading)
			continue
		}
		said[name] += line
	}
	return said
}

// The services call the program with flags that it knows, and with variables that
// their environment files define.
func TestServicesCallWhatExists(t *testing.T) {
	for service, environment := range map[string]string{"server": "server.env", "agent": "agent.env"} {
		unit := read(t, "everynode-"+service+".service")
		env := read(t, environment)
		start := regexp.MustCompile(`(?m)^ExecStart=/usr/bin/everynode (\S+) (.*)$`).FindStringSubmatch(unit)
		if start == nil || start[1] != service {
			t.Errorf("the service of the %s starts something else: %q", service, start)
			continue
		}
		for _, name := range regexp.MustCompile(`\$\{?([A-Z_]+)\}?`).FindAllStringSubmatch(start[2], -1) {
			if !strings.Contains(env, "\n"+name[1]+"=") {
				t.Errorf("%s does not define %s", environment, name[1])
			}
		}
		if service == "agent" && !strings.Contains(unit, "\nOOMScoreAdjust=-999\n") {
			t.Error("when memory runs out, the kernel ends the agent before its pods")
		}
		help, err := exec.Command("../../bin/everynode", service, "--help").CombinedOutput()
		if err != nil {
			t.Skipf("bin/everynode is not built; run: make build (%v)", err)
		}
		for _, flag := range regexp.MustCompile(`--[a-z-]+`).FindAllString(start[2]+env, -1) {
			if flag != "--help" && !strings.Contains(string(help), flag+" ") {
				t.Errorf("the service of the %s uses %s, which the command does not have", service, flag)
			}
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../../packaging", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
