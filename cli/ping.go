package cli

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/config"
)

func (e *env) ping() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "ping",
		Short: "Ask the server of this host whether it is up: for health checks",
		Long:  "Ask /healthz at the address that the settings name (listen.http). Exit status 0 if it answers, 1 if not.",
		Example: `  whylate ping
  whylate ping --config /etc/whylate/whylate.yaml`,
		Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := config.Load(config.Input{File: file, Environ: os.Environ()})
			if err != nil {
				return usageError{err}
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), 5*time.Second)
			defer cancel()
			scheme := "http"
			client := http.DefaultClient
			if c.TLS.Cert != "" {
				scheme, client = "https", selfTrusting()
			}
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+c.Listen.HTTP+"/healthz", nil)
			if err != nil {
				return fmt.Errorf("listen.http %s: %w", c.Listen.HTTP, err)
			}
			resp, err := client.Do(req)
			if err != nil {
				return fmt.Errorf("the server does not answer: %w", err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				return fmt.Errorf("the server answers %s", resp.Status)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "settings file, as for 'whylate serve'")
	return cmd
}
