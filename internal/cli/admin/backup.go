package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/everynode/everynode/internal/cli/command"
	"github.com/everynode/everynode/internal/files/wholefile"
	"github.com/everynode/everynode/internal/server"
	"github.com/everynode/everynode/internal/server/backups"
	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/storage/backup"
)

func NewBackup() *cobra.Command {
	cmd := &cobra.Command{
		Use: "backup", Short: "Back up the whole control plane to a file, and restore it from one",
		Long: `Back up the whole control plane to a file: its database, its keys and how it was started.
Restored from that file, a new machine is the same control plane; nodes and their
containers carry on as if nothing had happened.

The file holds all keys of the cluster, so it is encrypted: with a passphrase, or with
a key that "everynode backup key" makes. Keep
these somewhere other than the backups.`,
	}
	command.Group(cmd)
	cmd.AddCommand(newBackupSaveCommand(), newBackupRestoreCommand(), newBackupShowCommand(), newBackupKeyCommand())
	return cmd
}

func newBackupSaveCommand() *cobra.Command {
	var dataDir, kubeconfig string
	var locks lockFlags
	cmd := &cobra.Command{
		Use:   "save FILE",
		Short: "Write a backup of the control plane to a file, or to the standard output (-)",
		Long: `Write a backup of the control plane to a file, or to the standard output (-).

The server may be running or not. A running one is asked with the administrator's
kubeconfig: the one in the data directory, or from anywhere that of --kubeconfig.`,
		Args: command.OneArg("the file to write"),
		RunE: func(cmd *cobra.Command, args []string) error {
			lock, err := locks.forSaving(cmd)
			if err != nil {
				return err
			}
			var m backup.Manifest
			err = writeTo(cmd.OutOrStdout(), args[0], func(w io.Writer) (err error) {
				m, err = saveBackup(cmd.Context(), w, lock, dataDir, kubeconfig)
				return err
			})
			if err != nil {
				return fmt.Errorf("make a backup: %w", err)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "Saved revision %d of cluster %s.\n", m.Revision, shortHash(m.Cluster))
			return nil
		},
	}
	command.AddDataDirFlag(cmd, &dataDir)
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "an administrator's kubeconfig, to ask a server elsewhere")
	locks.add(cmd, "encrypt it with")
	return cmd
}

// saveBackup writes a backup of the server of a data directory, whether it runs or not,
// or of the one that a kubeconfig leads to.
func saveBackup(ctx context.Context, w io.Writer, lock backup.Lock, dataDir, kubeconfig string) (m backup.Manifest,
	err error) {
	if kubeconfig == "" {
		taken, err := server.TakeStopped(ctx, dataDir)
		if err == nil {
			defer func() { _ = taken.Close() }() // it is gone in any case
			return taken.Manifest(), taken.Write(w, lock)
		}
		if !errors.Is(err, backups.ErrRunning) {
			return m, err
		}
		kubeconfig = filepath.Join(dataDir, "kubeconfig")
	}
	sent, err := askBackup(ctx, kubeconfig)
	if err != nil {
		return m, err
	}
	defer func() { _ = sent.Close() }() // all of it was read
	return backups.Reseal(w, lock, sent)
}

func newBackupRestoreCommand() *cobra.Command {
	var dataDir string
	var locks lockFlags
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Make the data directory of a control plane from a backup (- for the standard input)",
		Long: `Make the data directory of a control plane from a backup (- for the standard input).
The directory must be empty. The control plane is that of a single server; others can
join it afterwards.

None of the old servers may still run, or be started again with the data that it has.
Give the new server the addresses of the old one: nodes look for it there.`,
		Args: command.OneArg("the file to read"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("data-dir") {
				return errors.New("name the empty folder to restore to with --data-dir")
			}
			b, done, err := openBackup(cmd, args[0], &locks)
			if err != nil {
				return err
			}
			defer done()
			revision, err := backups.Restore(cmd.Context(), b, dataDir, time.Now())
			if err != nil {
				return fmt.Errorf("restore %s: %w", args[0], err)
			}
			fmt.Fprintf(cmd.OutOrStdout(),
				"Restored the control plane as it was at %s. Its revisions go on at %d. Start it:\n\n  %s\n",
				b.Manifest.Created.Format(time.RFC3339), revision, startCommand(dataDir, b.Manifest.Start))
			return nil
		},
	}
	command.AddDataDirFlag(cmd, &dataDir)
	locks.add(cmd, "open it with")
	return cmd
}

func newBackupShowCommand() *cobra.Command {
	var locks lockFlags
	cmd := &cobra.Command{
		Use:   "show FILE",
		Short: "Show what is in a backup, and whether it is intact",
		Args:  command.OneArg("the file to read"),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, done, err := openBackup(cmd, args[0], &locks)
			if err != nil {
				return err
			}
			defer done()
			if err := b.Each(func(backup.File, io.Reader) error { return nil }); err != nil {
				return fmt.Errorf("check %s: %w", args[0], err)
			}
			return printManifest(cmd.OutOrStdout(), b)
		},
	}
	locks.add(cmd, "open it with")
	return cmd
}

func printManifest(out io.Writer, b *backup.Reader) error {
	m, encrypted := b.Manifest, "no"
	if b.Encrypted {
		encrypted = "yes"
	}
	w := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	for _, line := range [][2]string{
		{"Created", m.Created.Format(time.RFC3339)}, {"Cluster", m.Cluster}, {"Server",
			fmt.Sprintf("%s, of %d", m.Server, m.Servers)},
		{"Everynode", m.Everynode}, {"Kubernetes API", m.Kubernetes}, {"Data version", strconv.Itoa(m.Data)},
		{"Revision", strconv.FormatInt(m.Revision, 10)}, {"Encrypted", encrypted}, {"Start",
			startCommand("DIR", m.Start)},
	} {
		fmt.Fprintf(w, "%s\t%s\n", line[0], plainText(line[1]))
	}
	fmt.Fprintln(w, "\nPART\tBYTES")
	for _, f := range m.Files {
		fmt.Fprintf(w, "%s\t%d\n", f.Name, f.Size)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out, "\nThe backup is intact.")
	return nil
}

// plainText shows what a terminal would act on.
func plainText(text string) string {
	quoted := strconv.QuoteToASCII(text)
	return quoted[1 : len(quoted)-1]
}

// startCommand is how a server is started like the one before.
func startCommand(dataDir string, s backup.Start) string {
	words := []string{"everynode", "server", "--data-dir", dataDir}
	for _, l := range s.Listen {
		words = append(words, "--listen", l)
	}
	for _, o := range []struct{ flag, value, usual string }{
		{"--advertise-address", s.AdvertiseAddress, ""}, {"--peer-address", s.PeerAddress, ""}, {"--server-name",
			s.ServerName, ""},
		{"--service-cidr", s.ServiceCIDR, config.Defaults().ServiceCIDR}, {"--cluster-cidr", s.ClusterCIDR, ""},
		{"--etcd-prefix", s.EtcdPrefix, config.Defaults().API.Etcd.StorageConfig.Prefix},
	} {
		if o.value != "" && o.value != o.usual {
			words = append(words, o.flag, o.value)
		}
	}
	if s.NodeMaskSize != 0 {
		words = append(words, "--node-cidr-mask-size", strconv.Itoa(s.NodeMaskSize))
	}
	for i, word := range words {
		if strings.ContainsFunc(word, func(r rune) bool {
			return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:[],", r)
		}) {
			words[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

func shortHash(hash string) string { return hash[:min(12, len(hash))] }

// openBackup opens the file that a command is about.
func openBackup(cmd *cobra.Command, path string, locks *lockFlags) (b *backup.Reader, done func(), err error) {
	lock, err := locks.forOpening(cmd)
	if err != nil {
		return nil, nil, err
	}
	from, done := cmd.InOrStdin(), func() {}
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, nil, fmt.Errorf("read the backup: %w", err)
		}
		from, done = f, func() { _ = f.Close() } // it was only read
	}
	b, err = backups.Open(from, lock)
	if errors.Is(err, backup.ErrLocked) {
		done()
		return openWithTerminal(cmd, path, err)
	}
	if err != nil {
		done()
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return b, done, nil
}

// openWithTerminal asks for the passphrase of a backup that is encrypted.
func openWithTerminal(cmd *cobra.Command, path string, locked error) (*backup.Reader, func(), error) {
	if path == "-" || !onTerminal(cmd.InOrStdin()) {
		return nil, nil, fmt.Errorf("%s: %w", path, locked)
	}
	text, err := askPassphrase(cmd, "Passphrase of "+path+": ")
	if err != nil {
		return nil, nil, err
	}
	lock, err := backup.Passphrase(text)
	if err != nil {
		return nil, nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("read the backup: %w", err)
	}
	b, err := backups.Open(f, lock)
	if err != nil {
		_ = f.Close() // it was only read
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return b, func() { _ = f.Close() }, nil
}

// writeTo fills a new file, or the standard output.
func writeTo(out io.Writer, path string, fill func(io.Writer) error) error {
	if path == "-" {
		if onTerminal(out) {
			return errors.New("a backup cannot be written to a terminal; redirect the output to a file")
		}
		return fill(out)
	}
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s is there already; name another file, or move it away", path)
	}
	err := wholefile.Create(path, 0o600, fill)
	var failed *fs.PathError
	switch {
	case errors.Is(err, os.ErrExist):
		return fmt.Errorf("%s was created in the meantime; name another file", path)
	case errors.As(err, &failed) && strings.HasPrefix(filepath.Base(failed.Path), wholefile.Unfinished(path)):
		return fmt.Errorf("write %s: %w; nothing is there", path, failed.Err) // under a name that nobody knows
	}
	return err
}

func newBackupKeyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "key FILE",
		Short: "Make a key for backups",
		Long: `Make a key for backups, in the format of age. The public half, which is printed, is
enough to make backups: put it into a file for --key-file. Only FILE opens them. Keep
it where neither the servers nor the backups are.`,
		Args: command.OneArg("the file to write"),
		RunE: func(cmd *cobra.Command, args []string) error {
			secret, public, err := backup.NewKey()
			if err != nil {
				return err
			}
			err = writeTo(cmd.OutOrStdout(), args[0], wholefile.Bytes([]byte("# public key: "+public+"\n"+secret+"\n")))
			if err != nil {
				return fmt.Errorf("make a key: %w", err)
			}
			fmt.Fprintln(cmd.OutOrStdout(), public)
			return nil
		},
	}
}
