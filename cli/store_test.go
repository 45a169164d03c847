package cli

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/api/client"
	"github.com/whylate/whylate/server"
	"github.com/whylate/whylate/store/embedded"
	"github.com/whylate/whylate/store/storetest"
	"github.com/whylate/whylate/web"
)

// aStore is a store on the disk with four sealed periods.
func aStore(t *testing.T) (dir string, k *server.Keeper) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "store")
	st, err := embedded.Open(dir, embedded.Options{Writer: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	storetest.SealAll(t, st, storetest.Random(t, 3, 200), 50, 100, 150, 200)
	return dir, server.NewKeeper(st)
}

// remoteKeeper is k asked over HTTP.
func remoteKeeper(t *testing.T, k api.Keeper) api.Keeper {
	t.Helper()
	l, _ := both(t)
	svc := struct {
		api.Service
		api.Keeper
	}{l, k}
	srv := httptest.NewServer(web.New(svc, web.Options{Log: slog.New(slog.DiscardHandler)}))
	t.Cleanup(srv.Close)
	c, err := client.New(srv.URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// damage changes a byte in the middle of a table of one period.
func damage(t *testing.T, dir, table string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "sealed", "*", table+".parquet"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 0xff
	write(t, files[0], string(b))
}

// What is done to a store is the same, byte by byte, whether the files are opened or a server is asked: on two stores of the same content.
func TestRemoteStoreIsTheSame(t *testing.T) {
	dirA, a := aStore(t)
	dirB, b := aStore(t)
	both := []api.Keeper{a, remoteKeeper(t, b)}
	ctx := context.Background()
	// do does the same in both ways, and compares what is printed and what error there is.
	do := func(what string, print func(*env, api.Keeper) error) (text string, err error) {
		t.Helper()
		var texts [2]string
		var errs [2]error
		for i, k := range both {
			var out bytes.Buffer
			errs[i] = print(&env{out: &out, err: &bytes.Buffer{}}, k)
			texts[i] = strings.ReplaceAll(strings.ReplaceAll(out.String(), dirA, "DIR"), dirB, "DIR")
		}
		if d := cmp.Diff(texts[0], texts[1]); d != "" {
			t.Errorf("%s (-local +remote):\n%s", what, d)
		}
		text0, text1 := "", ""
		if errs[0] != nil {
			text0 = strings.ReplaceAll(errs[0].Error(), dirA, "DIR")
		}
		if errs[1] != nil {
			text1 = strings.ReplaceAll(errs[1].Error(), dirB, "DIR")
		}
		if text0 != text1 || errs[0] != nil && status(errs[0]) != status(errs[1]) {
			t.Errorf("%s: local: %s\nremote: %s", what, text0, text1)
		}
		return texts[0], errs[0]
	}
	ls := func(e *env, k api.Keeper) error {
		s, err := k.StoreState(ctx)
		if err != nil {
			return err
		}
		e.printStore(s)
		return (&output{format: "json"}).print(e, s, nil)
	}
	verify := func(e *env, k api.Keeper) error {
		v, err := k.VerifyStore(ctx)
		if err != nil {
			return err
		}
		e.printVerified(v)
		return (&output{format: "json"}).print(e, v, nil)
	}
	export := func(to string) func(e *env, k api.Keeper) error {
		n := 0
		return func(e *env, k api.Keeper) error {
			n++
			return e.exportTo(ctx, k, filepath.Join(t.TempDir(), to))
		}
	}
	if text, err := do("ls", ls); err != nil || strings.Count(text, `"id"`) != 4 {
		t.Errorf("%v\n%s", err, text)
	}
	if text, err := do("verify", verify); err != nil || !strings.Contains(text, "4 periods are whole") {
		t.Errorf("%v\n%s", err, text)
	}
	if _, err := do("export", export("whole")); err != nil {
		t.Error(err)
	}
	if text, err := do("compact", func(e *env, k api.Keeper) error {
		c, err := k.CompactStore(ctx, api.CompactQuery{Rows: 100})
		if err != nil {
			return err
		}
		return (&output{format: "json"}).print(e, c, nil)
	}); err != nil || !strings.Contains(text, `"periods_fewer": 2`) {
		t.Errorf("%v %s", err, text)
	}
	do("ls after compact", ls)

	// Files of both exports are the same.
	var trees [2]map[string]string
	for i, k := range both {
		dir := filepath.Join(t.TempDir(), "out")
		if err := (&env{err: &bytes.Buffer{}}).exportTo(ctx, k, dir); err != nil {
			t.Fatal(err)
		}
		trees[i] = tree(t, dir)
		if err := (&env{err: &bytes.Buffer{}}).exportTo(ctx, k, dir); err == nil || !strings.Contains(err.Error(), "name a new directory") {
			t.Errorf("into what is there: %v", err)
		}
	}
	if d := cmp.Diff(trees[0], trees[1]); d != "" || len(trees[0]) < 15 {
		t.Errorf("%d files; %.2000s", len(trees[0]), d)
	}

	damage(t, dirA, "requests")
	damage(t, dirB, "requests")
	if text, err := do("verify what is damaged", verify); err != nil || !strings.Contains(text, "its checksum is not the one") {
		t.Errorf("%v\n%s", err, text)
	}
	if _, err := do("export what is damaged", export("damaged")); !errors.As(err, new(*api.Damaged)) {
		t.Errorf("%T %v", err, err)
	}
	for _, dir := range []string{dirA, dirB} { // nothing of the exports stays
		left, err := filepath.Glob(filepath.Join(dir, "sealed", ".*"))
		if err != nil || len(left) > 0 {
			t.Error(left, err)
		}
	}
}

// tree is the content of all files below dir.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		out[strings.TrimPrefix(path, dir)] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// The commands ask a server that runs, and open the files where none does.
func TestStoreCommands(t *testing.T) {
	const viewer, operator = "viewer-token-0123456789", "operator-token-0123456789"
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	write(t, file("tokens"), "viewer "+viewer+"\noperator "+operator)
	write(t, file("viewer"), viewer)
	write(t, file("operator"), operator)
	s := startServe(t, dir, "WHYLATE_TOKENS_FILE="+file("tokens"), "WHYLATE_STORE_SEAL_EVERY=1s", "WHYLATE_STORE_HOT_PERIOD=1s")
	c := s.client(t, "http", client.Options{Token: operator})
	if _, err := c.Import(t.Context(), api.ImportQuery{Name: "demo"}, bytes.NewReader(demoCapture)); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { // all of it is sealed: nothing comes to what is listed, merged and exported
		st, err := c.StoreState(t.Context())
		o, oerr := c.Overview(t.Context())
		if err != nil || oerr != nil {
			return false
		}
		sealed := 0
		for _, p := range st.Periods {
			sealed += int(p.Requests)
		}
		return sealed > 0 && sealed == o.Requests
	})
	to := func(role string, args ...string) []string {
		return append([]string{"store"}, append(args, "--server", "http://"+s.address, "--token-file", file(role))...)
	}
	for _, step := range []struct {
		args   []string
		status int
		says   string
	}{
		{to("viewer", "ls"), ExitOK, "log: "},
		{to("operator", "ls", "-o", "json"), ExitOK, `"periods"`},
		{to("viewer", "verify"), ExitFailed, "a token of the role viewer may not do this"},
		{to("viewer", "compact"), ExitFailed, "use one of the role operator"},
		{to("viewer", "export", file("refused")), ExitFailed, "operator"},
		{to("operator", "verify"), ExitOK, "periods are whole"},
		{to("operator", "compact"), ExitOK, "periods fewer"},
		{to("operator", "export", file("out")), ExitOK, "exported to " + file("out")},
		{to("operator", "export", file("refused")), ExitOK, ""}, // the refusal left nothing there
		{[]string{"store", "ls", "--data-dir", dir}, ExitFailed, "another process has it open"},
		{[]string{"store", "compact", "--rows", "0"}, ExitUsage, "from 1"},
	} {
		code, out, errOut := run(t, step.args...)
		if code != step.status || !strings.Contains(out+errOut, step.says) {
			t.Errorf("whylate %s: exit %d, want %d, must say %q:\n%s%s", strings.Join(step.args, " "), code, step.status, step.says, out, errOut)
		}
	}
	s.stop()
	if code, out, errOut := run(t, "store", "verify", "--data-dir", dir); code != ExitOK || !strings.Contains(out, "periods are whole") {
		t.Errorf("exit %d: %s%s", code, out, errOut)
	}
	if code, _, errOut := run(t, "store", "export", file("local"), "--data-dir", dir); code != ExitOK {
		t.Errorf("exit %d: %s", code, errOut)
	}
	if d := cmp.Diff(tree(t, file("out")), tree(t, file("local"))); d != "" {
		t.Errorf("an export of the files is another (-server +files): %.2000s", d)
	}
}
