// Shows /openapi.json in the viewer. What would ask another server, or take a key, is turned off.
Scalar.createApiReference("#api", {
  url: "/openapi.json",
  withDefaultFonts: false,
  telemetry: false,
  agent: { disabled: true },
  mcp: { disabled: true },
  showDeveloperTools: "never",
  hideClientButton: true,
  hideTestRequestButton: true,
  persistAuth: false,
  documentDownloadType: "direct",
  // The document has samples of its own for each operation.
  hiddenClients: true,
  modelsSectionLabel: "Schemas",
});
