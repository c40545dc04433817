// Turn `number` is on the stage, and nothing is on its way.
(number) =>
  document.querySelector(".ag-stage .ag-number").textContent === number &&
  document.querySelector(".ag-doing").hidden &&
  document.querySelector(".ag-stop-button").hidden
